package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/store"
)

// Limits bound the streams; zero fields mean the defaults.
type Limits struct {
	Replicas    int   // 1
	RunsBytes   int64 // 1 GiB
	StatusBytes int64 // 2 GiB
	SubmitBytes int64 // 1 GiB
	LiveBytes   int64 // 64 MiB
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	l.Replicas = max(l.Replicas, 1)
	def(&l.RunsBytes, 1<<30)
	def(&l.StatusBytes, 2<<30)
	def(&l.SubmitBytes, 1<<30)
	def(&l.LiveBytes, 64<<20)
	return l
}

const (
	metaStore      = "waterclock_store"
	metaGeneration = "waterclock_generation"
	// dedupeWindow is how long STATUS knows a Msg-Id: longer than any executor may take to claim a run that another has claimed before.
	dedupeWindow = 2 * time.Minute
)

// Runs names the current RUNS stream.
type Runs struct {
	Name       string
	Generation int64
}

func runsName(generation int64) string { return runsPrefix + strconv.FormatInt(generation, 10) }

func generationOf(name string) (generation int64, ours bool) {
	text, ours := strings.CutPrefix(name, runsPrefix)
	generation, err := strconv.ParseInt(text, 10, 64)
	return generation, ours && err == nil
}

// Registrar is what Ensure asks of SQL.
type Registrar interface {
	Cluster(ctx context.Context) (store.Cluster, error)
	Streams(ctx context.Context) ([]store.Stream, error)
	NextGeneration(ctx context.Context, name string, from int64) (store.Stream, error)
}

// Ensure makes the streams or changes them to what they should be, and returns the current RUNS. It may be called by many processes at once and at any time.
//
// A RUNS stream that is missing, belongs to another store, or has gone back behind what SQL knows of it gets a new generation: SQL counts it first, then the
// old stream is deleted and the new one made. Runs that were handed out to the old one are found by their planner's watch.
func Ensure(ctx context.Context, js jetstream.JetStream, reg Registrar, limits Limits, log *slog.Logger) (Runs, error) {
	limits = limits.withDefaults()
	if err := checkLevel(ctx, js); err != nil {
		return Runs{}, err
	}
	cluster, err := reg.Cluster(ctx)
	if err != nil {
		return Runs{}, fmt.Errorf("read cluster identity: %w", err)
	}
	for _, cfg := range fixedStreams(limits, cluster.StoreID) {
		if err := ensureFixed(ctx, js, cfg, cluster.StoreID, log); err != nil {
			return Runs{}, err
		}
	}
	return ensureRuns(ctx, js, reg, limits, cluster.StoreID, log)
}

// leastLevel is the JetStream API level of NATS 2.12: servers before it send a delivery before they have replicated it, and say that a pull is over before they send what
// answers it (nats-server pull requests 6792 and 7046). Leases rely on both.
const leastLevel = 2

// checkLevel refuses a server that is too old.
func checkLevel(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return fmt.Errorf("ask for the level of JetStream: %w", err)
	}
	if info.API.Level < leastLevel {
		return fmt.Errorf("JetStream of the NATS server: given API level %d, allowed: %d and above, which is NATS 2.12 or later", info.API.Level, leastLevel)
	}
	return nil
}

// Only LIVE allows direct reads: any copy answers those, also one that lags behind, and of what stands in RUNS and STATUS nobody may be told that it is not there.
func fixedStreams(l Limits, storeID uuid.UUID) []jetstream.StreamConfig {
	meta := map[string]string{metaStore: storeID.String()}
	return []jetstream.StreamConfig{
		{
			Name: StatusStream, Subjects: []string{statusSubjects}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			MaxBytes: l.StatusBytes, Duplicates: dedupeWindow, Replicas: l.Replicas, Metadata: meta,
			Description: "what executors and planners report; recorders apply it to SQL",
		},
		{
			Name: SubmitStream, Subjects: []string{EnqueueSubjects}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			MaxBytes: l.SubmitBytes, Duplicates: dedupeWindow, Replicas: l.Replicas, Metadata: meta,
			Description: "submits of clients that do not wait for an answer",
		},
		{
			Name: LiveStream, Subjects: []string{liveSubjects}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: l.LiveBytes, MaxAge: time.Hour, Replicas: 1, Metadata: meta, AllowDirect: true,
			Description: "progress and live logs; losing it loses nothing that ends in history",
		},
		{
			Name: DeadStream, Subjects: []string{deadSubjects}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: 256 << 20, MaxAge: 30 * 24 * time.Hour, Replicas: l.Replicas, Metadata: meta,
			Description: "messages that could not be taken, with the reason in their headers",
		},
	}
}

// askLimit is how long one stream may take. While a cluster elects its leader questions are not answered at all; whoever asks again soon is answered soon.
const askLimit = 3 * time.Second

// ensureFixed keeps a stream whose name never changes. One of another store is deleted: what it holds speaks of jobs that this store never had.
func ensureFixed(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig, storeID uuid.UUID, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for {
		err := tryFixed(ctx, js, cfg, storeID, log)
		// A server that takes the folder of a stream away while another client makes it says that it cannot write there. The next try finds what there is.
		if api := (*jetstream.APIError)(nil); !errors.As(err, &api) || api.Code != http.StatusInternalServerError || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

// askAgain is the wait before JetStream is asked once more after an error of its own.
const askAgain = 50 * time.Millisecond

func tryFixed(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig, storeID uuid.UUID, log *slog.Logger) error {
	s, err := js.Stream(ctx, cfg.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		log.Info("making stream", "stream", cfg.Name)
	case err != nil:
		return fmt.Errorf("look up stream %s: %w", cfg.Name, err)
	default:
		if owner := s.CachedInfo().Config.Metadata[metaStore]; owner != storeID.String() {
			log.Warn("stream belongs to another store; making it anew", "stream", cfg.Name, "its_store", owner, "store", storeID)
			if err := js.DeleteStream(ctx, cfg.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("delete foreign stream %s: %w", cfg.Name, err)
			}
		}
	}
	if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("make stream %s: %w", cfg.Name, err)
	}
	return nil
}

// codeSubjectsOverlap is the server's error where a stream of another name has the subjects.
const codeSubjectsOverlap = 10065

// ensureTries is how often RUNS is made before others that make it at the same time are to blame.
const ensureTries = 20

// ensureRuns makes RUNS until the one that it made is also the one that SQL knows: of several that count a generation at once, the last wins.
func ensureRuns(ctx context.Context, js jetstream.JetStream, reg Registrar, l Limits, storeID uuid.UUID, log *slog.Logger) (Runs, error) {
	var missing int64 // the generation that was found missing at the last try, and may be one that somebody is making
	for try := 1; ; try++ {
		runs, err := makeRuns(ctx, js, reg, l, storeID, &missing, log)
		if err == nil {
			current, err := currentRuns(ctx, reg)
			if err != nil || current.Generation == runs.Generation {
				return runs, err
			}
		} else if api := (*jetstream.APIError)(nil); !errors.Is(err, errBeingMade) && (!errors.As(err, &api) || api.ErrorCode != codeSubjectsOverlap) {
			return Runs{}, err
		}
		if try == ensureTries {
			return Runs{}, errors.Join(errors.New("RUNS is made by others all the time"), err)
		}
		select {
		case <-ctx.Done():
			return Runs{}, context.Cause(ctx)
		case <-time.After(100*time.Millisecond + rand.N(200*time.Millisecond)):
		}
	}
}

// errBeingMade: SQL knows a generation that nobody has used, so it may be about to be made.
var errBeingMade = errors.New("RUNS is being made")

func currentRuns(ctx context.Context, reg Registrar) (current store.Stream, err error) {
	known, err := reg.Streams(ctx)
	if err != nil {
		return current, fmt.Errorf("read streams: %w", err)
	}
	for _, s := range known {
		if s.Name == RunsStream {
			current = s
		}
	}
	return current, nil
}

func makeRuns(ctx context.Context, js jetstream.JetStream, reg Registrar, l Limits, storeID uuid.UUID, missing *int64, log *slog.Logger) (Runs, error) {
	current, err := currentRuns(ctx, reg)
	if err != nil {
		return Runs{}, err
	}
	if current.Generation > 0 {
		ok, err := runsIntact(ctx, js, current, storeID, log)
		if err == nil && ok {
			err = dropOtherRuns(ctx, js, reg, current.Generation, storeID)
		}
		if err != nil {
			return Runs{}, err
		}
		if ok {
			return updateRuns(ctx, js, current.Generation, l, storeID)
		}
		if current.LastSeq == 0 && *missing != current.Generation {
			*missing = current.Generation
			return Runs{}, errBeingMade
		}
	}
	next, err := reg.NextGeneration(ctx, RunsStream, current.Generation)
	if err != nil {
		return Runs{}, fmt.Errorf("count generation of RUNS: %w", err)
	}
	failpoint.Here(failpoint.StreamsGeneration)
	log.Info("RUNS has a new generation", "generation", next.Generation)
	if err := dropOtherRuns(ctx, js, reg, next.Generation, storeID); err != nil {
		return Runs{}, err
	}
	return updateRuns(ctx, js, next.Generation, l, storeID)
}

func runsIntact(ctx context.Context, js jetstream.JetStream, known store.Stream, storeID uuid.UUID, log *slog.Logger) (bool, error) {
	name := runsName(known.Generation)
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		log.Warn("RUNS is missing", "stream", name)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up stream %s: %w", name, err)
	}
	info := s.CachedInfo()
	if owner := info.Config.Metadata[metaStore]; owner != storeID.String() {
		log.Warn("RUNS belongs to another store", "stream", name, "its_store", owner, "store", storeID)
		return false, nil
	}
	if info.State.LastSeq < known.LastSeq {
		log.Warn("RUNS has gone back", "stream", name, "last_sequence", info.State.LastSeq, "known", known.LastSeq)
		return false, nil
	}
	return true, nil
}

// dropOtherRuns makes room for the subjects of a generation. What another store left under its name goes too; what somebody counted later in SQL stays.
func dropOtherRuns(ctx context.Context, js jetstream.JetStream, reg Registrar, keep int64, storeID uuid.UUID) error {
	list := js.ListStreams(ctx, jetstream.WithStreamListSubject(runSubjects))
	for info := range list.Info() {
		name := info.Config.Name
		gen, ours := generationOf(name)
		if !ours {
			continue
		}
		if info.Config.Metadata[metaStore] == storeID.String() && gen >= keep {
			current, err := currentRuns(ctx, reg)
			if err != nil {
				return err
			}
			if gen <= current.Generation {
				continue
			}
		}
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	return nil
}

func updateRuns(ctx context.Context, js jetstream.JetStream, generation int64, l Limits, storeID uuid.UUID) (Runs, error) {
	cfg := jetstream.StreamConfig{
		Name: runsName(generation), Subjects: []string{runSubjects}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1, MaxBytes: l.RunsBytes, Replicas: l.Replicas,
		Metadata:    map[string]string{metaStore: storeID.String(), metaGeneration: strconv.FormatInt(generation, 10)},
		Description: "runs that were handed out and have not ended",
	}
	if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return Runs{}, fmt.Errorf("make stream %s: %w", cfg.Name, err)
	}
	return Runs{Name: cfg.Name, Generation: generation}, nil
}

// ErrNoRuns is the error of Discover where no planner has made the streams yet.
var ErrNoRuns = errors.New("no RUNS stream; is a planner running?")

// Discover finds the current RUNS without SQL, for executors.
func Discover(ctx context.Context, js jetstream.JetStream) (Runs, error) {
	var newest Runs
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject(runSubjects))
	for name := range names.Name() {
		if gen, ours := generationOf(name); ours && gen > newest.Generation {
			newest = Runs{Name: name, Generation: gen}
		}
	}
	if err := names.Err(); err != nil {
		return Runs{}, fmt.Errorf("list streams: %w", err)
	}
	if newest.Generation == 0 {
		return Runs{}, ErrNoRuns
	}
	return newest, nil
}

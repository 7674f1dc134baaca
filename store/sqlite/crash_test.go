package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

// childFolder names the variable that makes the test binary a process that holds a store in a folder.
const childFolder = "WATERCLOCK_TEST_SQLITE_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		if err := submitForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// submitForEver writes the id of each job whose submit was acknowledged to standard output.
func submitForEver(dir string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "waterclock.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	errs := make(chan error)
	for range 4 {
		go func() {
			for {
				sub := submission(s, time.Now())
				if _, err := s.Submit(ctx, []store.Submission{sub}); err != nil {
					errs <- err
					return
				}
				if _, err := fmt.Println(sub.Job.ID); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

func submission(s store.Store, at time.Time) store.Submission {
	j := &job.Job{
		ID: s.Traits().NewJobID(), Namespace: "ns", Version: 1, State: job.Active, Kind: "test", Queue: job.DefaultQueue,
		QueueNamespace: job.SharedNamespace, Priority: job.Normal, DueAt: at, CreatedAt: at, UpdatedAt: at, Payload: []byte("payload"),
		Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Once, At: at}},
	}
	t := store.NewTimer(j, schedule.Occurrence{At: at}, at)
	return store.Submission{Job: j, Timer: &t}
}

// A process that is killed loses nothing that it acknowledged, and its hold on the folder goes with it.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), childFolder+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var ids []uuid.UUID
		for len(ids) < 50*(round+1) && lines.Scan() {
			ids = append(ids, uuid.MustParse(lines.Text()))
		}
		if round == 0 {
			_, err := sqlite.Open(t.Context(), filepath.Join(dir, "waterclock.db"), sqlite.Options{})
			if !errors.Is(err, store.ErrHeld) || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
				t.Errorf("open beside process %d: error %v, want ErrHeld with the process id", cmd.Process.Pid, err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if id, err := uuid.Parse(lines.Text()); err == nil { // the last line may be cut
				ids = append(ids, id)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it was killed
		acknowledged += len(ids)

		s := openAt(t, filepath.Join(dir, "waterclock.db"), sqlite.Options{})
		for _, id := range ids {
			j, err := s.Job(t.Context(), "ns", id)
			if err != nil {
				t.Fatalf("round %d: acknowledged job: %v", round, err)
			}
			if timers, err := s.Timers(t.Context(), []*job.Job{j}); err != nil || len(timers[id]) != 1 || string(j.Payload) != "payload" {
				t.Fatalf("round %d: job %+v has timers %+v, error %v", round, j, timers, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if acknowledged < 300 {
		t.Errorf("only %d jobs were acknowledged: nothing was tested", acknowledged)
	}
}

// A process that died may be survived for a moment by a child that it was about to start, which has its files until it begins its own program.
func TestLockOfAProcessThatDied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead := exec.Command("true")
	check.OK(t, dead.Run())
	f, err := os.Create(filepath.Join(dir, "waterclock.lock"))
	check.OK(t, err)
	_, err = fmt.Fprintln(f, dead.Process.Pid)
	check.OK(t, err)
	check.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	released := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { released <- f.Close() })
	l, err := sqlite.LockFolder(dir)
	if err != nil {
		t.Fatalf("while it was held by the child of a process that died: %v", err)
	}
	check.OK(t, errors.Join(<-released, l.Unlock()))
}

func TestLockFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := sqlite.LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := sqlite.LockFolder(dir); !errors.Is(err, store.ErrHeld) || l != nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("second hold: error %v, want ErrHeld with the process id", err)
	}
	path := filepath.Join(dir, "waterclock.db")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, store.ErrHeld) {
		t.Errorf("open of a held folder: error %v, want ErrHeld", err)
	}
	// Who holds the folder passes the hold on, and keeps it when the store is closed.
	if err := openAt(t, path, sqlite.Options{Lock: first}).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.LockFolder(dir); !errors.Is(err, store.ErrHeld) {
		t.Errorf("hold after the store was closed: error %v, want ErrHeld", err)
	}
	for range 2 {
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, path, sqlite.Options{})
	if _, err := sqlite.LockFolder(dir); !errors.Is(err, store.ErrHeld) {
		t.Errorf("hold beside an open store: error %v, want ErrHeld", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := sqlite.LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := sqlite.LockFolder(filepath.Join(dir, "none")); err == nil || errors.Is(err, store.ErrHeld) {
		t.Errorf("hold on a folder that is not there: error %v", err)
	}
}

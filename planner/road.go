package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	roadEvery  = time.Second
	lookWithin = 3 * time.Second
	saveSeq    = 10 // looks between two notes of how far RUNS had come
	// statusEvery is how often STATUS is looked at while nothing is handed out.
	statusEvery = 5 * time.Second
)

// onElection sees to what a stream lost while it had no leader: nobody will answer a look under way, nor what was published.
func (p *Planner) onElection(stream string) {
	if stream == p.road.Load().runs.Name {
		p.window.GiveUp()
	}
	if cancel := p.looking.Load(); cancel != nil {
		(*cancel)()
	}
	select {
	case p.elected <- struct{}{}:
	default:
	}
}

// followRoad keeps the word on the streams fresh, and makes RUNS anew where it is gone.
func (p *Planner) followRoad() {
	tick := time.NewTicker(roadEvery)
	defer tick.Stop()
	back := p.cfg.Conn.StatusChanged(nats.CONNECTED)
	defer p.cfg.Conn.RemoveStatusListener(back)
	for n := 1; ; n++ {
		select {
		case <-p.life.Done():
			return
		case <-tick.C:
		case <-p.elected:
		case _, open := <-back:
			if !open {
				back = nil // the connection is closed for good
			}
		}
		if !p.cfg.Conn.IsConnected() {
			continue
		}
		ctx, cancel := context.WithTimeout(p.life, lookWithin)
		p.looking.Store(&cancel)
		err := p.look(ctx, n%saveSeq == 0)
		cancel()
		if err != nil && (streams.Gone(err) || errors.Is(err, errWentBack)) {
			p.log.Warn("a stream is gone, or not as it was; making the streams anew", "error", err)
			ctx, cancel := context.WithTimeout(p.life, lookWithin)
			err = p.lookAtRoad(ctx)
			cancel()
		}
		if err != nil && p.life.Err() == nil {
			p.log.Warn("cannot look at the streams; nothing is handed out meanwhile", "error", err)
		}
		p.do(func() {}) // the road may be open again: plan
	}
}

// lookAtRoad makes sure of the streams and looks at them.
func (p *Planner) lookAtRoad(ctx context.Context) error {
	runs, err := streams.Ensure(ctx, p.js, p.cfg.Store, p.cfg.Limits, p.log)
	if err != nil {
		return err
	}
	p.openLanes(ctx, runs)
	p.road.Store(&road{runs: runs})
	return p.look(ctx, false)
}

// openLanes makes the consumers of the lanes that this planner knows, in a stream that is new. What it does not come to costs a hand-over more.
func (p *Planner) openLanes(ctx context.Context, runs streams.Runs) {
	if old := p.road.Load(); old == nil || old.runs == runs {
		return // what is handed out for the first time waits until an executor is there, and that makes them
	}
	lanes, _ := ask(p, func() []streams.Lane {
		var out []streams.Lane
		for l := range p.board.lanes {
			out = append(out, l)
		}
		return out
	})
	for _, l := range lanes {
		if err := streams.EnsureConsumer(ctx, p.js, runs, l, p.cfg.AckWait); err != nil {
			p.log.Warn("cannot make the consumer of a lane yet; its executors do", "lane", l.String(), "error", err)
			return
		}
	}
}

// errWentBack: the NATS server has come back with older data. What it hands out again is refused, and what it has lost is missed by the watch; a new generation
// makes both quicker, and executors fence themselves.
var errWentBack = errors.New("RUNS has fewer messages behind it than before")

func (p *Planner) look(ctx context.Context, save bool) error {
	old := p.road.Load()
	begun := time.Now()
	state, err := streams.PollRuns(ctx, p.js, old.runs)
	if err != nil {
		return err
	}
	if state.LastSeq < old.lastSeq {
		// SQL is told first how far it was: by that it is found out, whoever looks.
		seen := store.Stream{Name: streams.RunsStream, Generation: old.runs.Generation, LastSeq: old.lastSeq}
		if err := p.cfg.Store.SaveStreamSeq(ctx, seen); err != nil {
			return fmt.Errorf("save how far RUNS was: %w", err)
		}
		return fmt.Errorf("%w: %d, and %d", errWentBack, state.LastSeq, old.lastSeq)
	}
	// Where nothing was handed out since STATUS was found open nothing has filled it but what was under way, for a time.
	open, statusAt := old.open, old.statusAt
	if !open || state.LastSeq != old.lastSeq || begun.Sub(statusAt) > statusEvery {
		fill, _, _, err := streams.StatusFill(ctx, p.js)
		if err != nil {
			return err
		}
		open, statusAt = fill < statusHalf, begun
		if open != old.open && !old.heardAt.IsZero() {
			p.log.Warn("STATUS fills up or drains", "fill", fill, "handing_out", open)
		}
	}
	p.road.Store(&road{
		runs: old.runs, serverTime: state.ServerTime, heardAt: begun, open: open, server: streams.ServerMark(p.cfg.Conn),
		lastSeq: state.LastSeq, statusAt: statusAt,
	})
	p.cfg.Metrics.inStream.Set(float64(state.Messages))
	if save {
		s := store.Stream{Name: streams.RunsStream, Generation: old.runs.Generation, LastSeq: state.LastSeq}
		if err := p.cfg.Store.SaveStreamSeq(ctx, s); err != nil {
			return fmt.Errorf("save how far RUNS is: %w", err)
		}
	}
	return nil
}

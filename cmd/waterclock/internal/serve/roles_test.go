package serve

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/config"
	"github.com/waterclock-io/waterclock/store"
)

// played is a role that can be started once.
type played struct {
	fails            error
	started, stopped bool
}

func (p *played) Start(context.Context) error {
	if p.started {
		return errors.New("started already")
	}
	p.started = true
	return p.fails
}

func (p *played) Stop() { p.stopped = true }

func aNode() *Node {
	n := &Node{log: slog.New(slog.DiscardHandler)}
	n.cfg = config.Config{}
	n.cfg.Startup.Timeout = time.Minute
	return n
}

// The fault: what a role needs is away in the moment of its start. It is made anew and tried again.
func TestRoleThatCannotStartYetIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := aNode()
		var made []*played
		err := startRole(t.Context(), n, "role", func() (*played, error) {
			p := &played{}
			if len(made) < 2 {
				p.fails = errors.New("JetStream does not answer")
			}
			made = append(made, p)
			return p, nil
		})
		if err != nil || len(made) != 3 || len(n.stops) != 1 {
			t.Fatalf("%d were made, %d are to be stopped: %v", len(made), len(n.stops), err)
		}
		for i, p := range made {
			if p.stopped != (i < 2) {
				t.Errorf("number %d: stopped %t", i, p.stopped)
			}
		}
		n.Stop(t.Context())
		if !made[2].stopped {
			t.Error("the one that runs was not stopped with its process")
		}
	})
}

func TestRoleThatNeverStartsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := aNode()
		away := errors.New("away")
		began := time.Now()
		if err := startRole(t.Context(), n, "role", func() (*played, error) { return &played{fails: away}, nil }); !errors.Is(err, away) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute || len(n.stops) != 0 {
			t.Errorf("given up after %s", took)
		}
	})
}

// An answer of the database is taken as it is; that there was none is not.
func TestAskSQL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, asked := aNode(), 0
		err := n.askSQL(t.Context(), func(context.Context) error {
			if asked++; asked < 3 {
				return store.ErrUnavailable
			}
			return store.ErrNotFound
		})
		if !errors.Is(err, store.ErrNotFound) || asked != 3 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}

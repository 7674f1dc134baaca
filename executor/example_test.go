package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/executor"
)

// Charge is the payload of a job of kind "charge".
type Charge struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// Receipt is what such a run returns.
type Receipt struct {
	Number string `json:"number"`
}

// bank stands for a system outside that knows idempotency keys and fencing tokens.
type bank struct{ highest int64 }

func (b *bank) charge(_ context.Context, c Charge, idempotencyKey string, fence int64) (string, error) {
	if fence < b.highest {
		return "", errors.New("somebody newer is at it")
	}
	b.highest = fence
	return fmt.Sprintf("%s-%d-%d", c.Customer, c.Cents, len(idempotencyKey)), nil
}

// A worker: a handler with a typed payload and result, which reports progress, writes a log, and hands the run's idempotency key and fencing token to the
// system that it changes.
func Example() {
	var payments bank
	charge := func(ctx context.Context, c Charge) (Receipt, error) {
		run, _ := executor.FromContext(ctx)
		if c.Cents <= 0 {
			return Receipt{}, executor.Fatal(fmt.Errorf("cents: %d given; allowed: more than 0", c.Cents)) // no attempt can mend it
		}
		run.Progress(0.1, "asking the bank")
		number, err := payments.charge(ctx, c, run.IdempotencyKey(), run.Dispatch)
		if err != nil {
			return Receipt{}, executor.RetryAfter(err, time.Minute)
		}
		fmt.Fprintf(run.Stdout(), "charged %s in attempt %d of %d\n", c.Customer, run.Attempt, run.MaxAttempts)
		return Receipt{Number: number}, nil
	}

	p, done := examplePlant() // in real life: streams.Connect, and a Waterclock that runs somewhere
	defer done()
	worker, err := executor.New(executor.Config{
		Conn:     p.nc,
		Slots:    4,
		Handlers: map[string]executor.Handler{"charge": executor.JSON(charge)},
	})
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := worker.Start(ctx); err != nil {
		log.Panic(err)
	}
	defer worker.Stop(ctx) // lets running work end

	for _, payload := range []string{`{"customer":"ada","cents":1250}`, `{"customer":"ada","cents":0}`, `{"customer":1}`} {
		m := p.message("charge")
		m.Payload = []byte(payload)
		end := p.ended(p.publish(m))
		fmt.Printf("%s: %s%s\n", end.Reason, end.Result, end.Message)
	}
	// Output:
	// ok: {"number":"ada-1250-36"}
	// fatal: cents: 0 given; allowed: more than 0
	// fatal: decode payload of kind charge: json: cannot unmarshal number into Go struct field Charge.customer of type string
}

// examplePlant is newPlant for examples, which have no *testing.T.
func examplePlant() (*plant, func()) {
	tb := &exampleTB{}
	return newPlant(tb), func() {
		for i := len(tb.cleanups) - 1; i >= 0; i-- {
			tb.cleanups[i]()
		}
	}
}

type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                           {}
func (*exampleTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) Cleanup(f func())               { tb.cleanups = append(tb.cleanups, f) }

func (tb *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "waterclock-example")
	if err != nil {
		panic(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	})
	return dir
}

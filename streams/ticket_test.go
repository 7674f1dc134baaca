package streams

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

func anyTicket(t *rapid.T) *wirev1.Ticket {
	run, id := anyID(t, "run"), anyID(t, "job")
	return &wirev1.Ticket{
		JobId: id[:], RunId: run[:], Shard: rapid.Uint32().Draw(t, "shard"), DueAt: rapid.Int64().Draw(t, "due"), Dispatch: rapid.Int64().Draw(t, "dispatch"),
		Namespace: tokens.Draw(t, "namespace"), Queue: tokens.Draw(t, "queue"), Attempt: rapid.Int32().Draw(t, "attempt"), Recurring: rapid.Bool().Draw(t, "recurring"),
	}
}

func TestSealThereAndBack(t *testing.T) {
	t.Parallel()
	s := NewSealer([]byte("key"))
	rapid.Check(t, func(t *rapid.T) {
		want := anyTicket(t)
		sealed, err := s.Seal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Open(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Fatal(d)
		}
	})
}

func TestSealIsRefused(t *testing.T) {
	t.Parallel()
	s, other := NewSealer([]byte("key")), NewSealer([]byte("another key"))
	rapid.Check(t, func(t *rapid.T) {
		ticket := anyTicket(t)
		sealed, err := s.Seal(ticket)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := other.Seal(ticket)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(sealed)
		flipped[rapid.IntRange(0, len(flipped)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		// The seal of one ticket on the body of another.
		second := anyTicket(t)
		second.Dispatch = ticket.Dispatch ^ 1
		swapped, err := proto.Marshal(second)
		if err != nil {
			t.Fatal(err)
		}
		for what, b := range map[string][]byte{
			"foreign": foreign, "flipped": flipped, "truncated": sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "left")],
			"beheaded": sealed[rapid.IntRange(1, len(sealed)).Draw(t, "cut"):], "longer": append(bytes.Clone(sealed), 0), "nil": nil,
			"swapped": append(swapped, sealed[len(sealed)-sealSize:]...), "unsealed": swapped, "zero seal": append(bytes.Clone(swapped), make([]byte, sealSize)...),
		} {
			if got, err := s.Open(b); !errors.Is(err, ErrSeal) {
				t.Fatalf("%s: got %v, %v", what, got, err)
			}
		}
	})
}

func TestSealedByUsButNoTicket(t *testing.T) {
	t.Parallel()
	s := NewSealer([]byte("key"))
	for _, body := range [][]byte{nil, {0xff}, []byte("not a ticket at all")} {
		if got, err := s.Open(s.mac(bytes.Clone(body), body)); !errors.Is(err, ErrSeal) {
			t.Errorf("%q: got %v, %v", body, got, err)
		}
	}
}

func TestSealersAreSharedByGoroutines(t *testing.T) {
	t.Parallel()
	s := NewSealer([]byte("key"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range int64(500) {
				sealed, err := s.Seal(&wirev1.Ticket{JobId: make([]byte, 16), RunId: make([]byte, 16), Dispatch: i})
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Open(sealed); err != nil || got.Dispatch != i {
					t.Errorf("got %v, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

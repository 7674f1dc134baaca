package auth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/api/auth"
	"github.com/waterclock-io/waterclock/store"
)

// keys is a table of keys that counts its look-ups.
type keys struct {
	byID    map[string]store.APIKey
	lookups atomic.Int32
	err     error
}

func (k *keys) KeyByID(_ context.Context, id string) (store.APIKey, error) {
	k.lookups.Add(1)
	if k.err != nil {
		return store.APIKey{}, k.err
	}
	key, ok := k.byID[id]
	if !ok {
		return store.APIKey{}, store.ErrNotFound
	}
	return key, nil
}

var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

type world struct {
	keys *keys
	now  time.Time
	auth *auth.Authenticator
}

func newWorld() *world {
	w := &world{keys: &keys{byID: map[string]store.APIKey{}}, now: start}
	w.auth = auth.New(auth.Config{Keys: w.keys, Now: func() time.Time { return w.now }, AllowAnonymousLoopback: true})
	return w
}

func (w *world) key(change func(*store.APIKey)) string {
	k, text := auth.NewKey("acme", "note", start, time.Time{})
	change(&k)
	w.keys.byID[k.ID] = k
	return text
}

func request(from, host string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://"+host+"/", nil)
	r.RemoteAddr = from
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func TestWhateverIsWrongIsTheSame(t *testing.T) {
	t.Parallel()
	good := func(*store.APIKey) {}
	for name, header := range map[string]func(w *world) string{
		"unknown":   func(*world) string { return "Bearer wck_aaaa_bbbb" },
		"wrong":     func(w *world) string { return "Bearer " + w.key(good) + "x" },
		"revoked":   func(w *world) string { return "Bearer " + w.key(func(k *store.APIKey) { k.RevokedAt = start }) },
		"expired":   func(w *world) string { return "Bearer " + w.key(func(k *store.APIKey) { k.ExpiresAt = start }) },
		"no hash":   func(w *world) string { return "Bearer " + w.key(func(k *store.APIKey) { k.Hash = nil }) },
		"scheme":    func(w *world) string { return "Basic " + w.key(good) },
		"malformed": func(*world) string { return "Bearer wck_" },
		"empty":     func(*world) string { return "" },
		"long":      func(*world) string { return "Bearer wck_" + strings.Repeat("a", 5000) + "_b" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			// From loopback: a bad credential must not fall back to none.
			if c, err := w.auth.Authenticate(request("127.0.0.1:5", "localhost", "Authorization", header(w))); !errors.Is(err, auth.ErrDenied) {
				t.Errorf("got %v %v", c, err)
			}
		})
	}
	w := newWorld()
	c, err := w.auth.Authenticate(request("192.0.2.1:5", "example.com", "Authorization", "bearer "+w.key(good)))
	if err != nil || c.Namespace != "acme" {
		t.Errorf("a good key: %v %v", c, err)
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		r    *http.Request
		ok   bool
	}{
		{"loopback", request("127.0.0.1:5", "localhost:8080"), true},
		{"loopback 6", request("[::1]:5", "[::1]:8080"), true},
		{"another machine", request("192.0.2.1:5", "localhost"), false},
		{"by a proxy", request("127.0.0.1:5", "localhost", "X-Forwarded-For", "192.0.2.1"), false},
		{"rebound name", request("127.0.0.1:5", "evil.example:8080"), false},
	} {
		w := newWorld()
		who, err := w.auth.Authenticate(c.r)
		if (err == nil) != c.ok || (c.ok && who.Namespace != "default") {
			t.Errorf("%s: %v %v", c.name, who, err)
		}
	}
	strict := auth.New(auth.Config{Keys: &keys{}, Now: time.Now})
	if _, err := strict.Authenticate(request("127.0.0.1:5", "localhost")); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("not allowed by configuration: %v", err)
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld()
	good := w.key(func(*store.APIKey) {})
	use := func(from, key string) error {
		_, err := w.auth.Authenticate(request(from, "x", "Authorization", "Bearer "+key))
		return err
	}
	if err := use("192.0.2.1:1", good); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for i := range 30 {
		err := use("192.0.2.1:1", "wck_guess_"+strings.Repeat("x", i+1))
		if errors.Is(err, auth.ErrDenied) {
			failures++
		} else if !errors.Is(err, auth.ErrThrottled) {
			t.Fatal(err)
		}
	}
	if failures != 10 {
		t.Errorf("%d guesses were looked at, want 10", failures)
	}
	if err := use("192.0.2.1:1", good); err != nil {
		t.Errorf("a key that was in use is held off with the guesses of others: %v", err)
	}
	if err := use("192.0.2.2:1", "wck_guess_x"); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("another address: %v", err)
	}
	w.now = w.now.Add(time.Minute)
	if err := use("192.0.2.1:1", "wck_guess_x"); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("a minute later: %v", err)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	w := newWorld()
	k := w.key(func(*store.APIKey) {})
	use := func() error {
		_, err := w.auth.Authenticate(request("192.0.2.1:1", "x", "Authorization", "Bearer "+k))
		return err
	}
	for range 100 {
		if err := use(); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.keys.lookups.Load(); n != 1 {
		t.Errorf("%d look-ups", n)
	}
	for id, stored := range w.keys.byID {
		stored.RevokedAt = w.now
		w.keys.byID[id] = stored
	}
	w.now = w.now.Add(5 * time.Second)
	if err := use(); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("revoked five seconds ago: %v", err)
	}
	w.keys.err = store.ErrUnavailable
	w.now = w.now.Add(5 * time.Second)
	if err := use(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the store is away: %v", err)
	}
}

// Package auth tells who calls: it turns a credential into a namespace.
//
// A credential is "wck_<id>_<secret>", sent as a bearer token. The id finds the stored key, the SHA-256 of the secret is compared with what is stored.
// Whatever is wrong with a credential, its bearer gets the same answer after the same work; an address that keeps failing is held off for a while. What a
// namespace may do is not decided here: every key may use the whole of its namespace. The middleware of api calls it, the key command makes keys with it.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// The refusals.
var (
	// ErrDenied is the one answer to a credential that is missing, malformed, unknown, wrong, revoked or expired.
	ErrDenied = errors.New("a valid API key is needed: send the header \"Authorization: Bearer wck_…\"")
	// ErrThrottled is the answer to an address that has failed too often.
	ErrThrottled = errors.New("too many failed attempts from this address; try again in a minute")
)

// cacheFor is how long a key is taken to be as it was read: so long may a revoked key still work.
const cacheFor = 5 * time.Second

// Keys finds stored keys. store.ErrNotFound where there is none.
type Keys interface {
	KeyByID(ctx context.Context, id string) (store.APIKey, error)
}

// Caller is who calls.
type Caller struct {
	Namespace string
	// Name is for records of who did what: the id of the key, or "anonymous".
	Name string
}

// Config is what an Authenticator needs.
type Config struct {
	Keys Keys
	// Now is the clock by which keys expire and caches age.
	Now func() time.Time
	// AllowAnonymousLoopback lets a caller without any credential into the default namespace, where the connection comes from this very machine and
	// was not passed on by a proxy.
	AllowAnonymousLoopback bool
}

// Authenticator checks credentials. Safe for concurrent use.
type Authenticator struct {
	cfg      Config
	cache    *cache
	failures *throttle
	lookups  singleflight.Group
}

// New returns an Authenticator.
func New(cfg Config) *Authenticator {
	return &Authenticator{cfg: cfg, cache: newCache(), failures: newThrottle()}
}

// Authenticate returns who sends a request. Errors: ErrDenied, ErrThrottled, or one of the store's, which says nothing about the credential.
func (a *Authenticator) Authenticate(r *http.Request) (Caller, error) {
	addr := remote(r)
	given := r.Header.Values("Authorization")
	if len(given) == 0 && a.cfg.AllowAnonymousLoopback && local(r, addr) {
		return Caller{Namespace: job.DefaultNamespace, Name: "anonymous"}, nil
	}
	if len(given) != 1 {
		return Caller{}, ErrDenied
	}
	now := a.cfg.Now()
	id, secret, ok := parse(given[0])
	// A key that works is let through however often others behind the same address have failed, where no look-up is needed to see it.
	if k, found := a.cache.get(id, now); ok && found && valid(&k, secret, now) {
		return caller(&k), nil
	}
	if !a.failures.allowed(addr, now) {
		return Caller{}, ErrThrottled
	}
	k, err := a.key(r.Context(), id, ok, now)
	if err != nil {
		return Caller{}, err
	}
	if !valid(&k, secret, now) || !ok {
		a.failures.failed(addr, now)
		return Caller{}, ErrDenied
	}
	return caller(&k), nil
}

func caller(k *store.APIKey) Caller { return Caller{Namespace: k.Namespace, Name: k.ID} }

// key returns a stored key, from the cache where it is young enough; a key that no secret fits where there is none.
func (a *Authenticator) key(ctx context.Context, id string, wellFormed bool, now time.Time) (store.APIKey, error) {
	if !wellFormed {
		return store.APIKey{}, nil
	}
	if k, ok := a.cache.get(id, now); ok {
		return k, nil
	}
	// The look-up is shared, so it must not end with whichever caller happened to be first.
	found, err, _ := a.lookups.Do(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		k, err := a.cfg.Keys.KeyByID(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			k, err = store.APIKey{}, nil
		}
		if err == nil {
			a.cache.put(id, k, now)
		}
		return k, err
	})
	if err != nil {
		return store.APIKey{}, err //nolint:wrapcheck // the caller wraps; the cause counts
	}
	return found.(store.APIKey), nil //nolint:forcetypeassert // made above
}

const lookupTimeout = 5 * time.Second

// valid does the same work whatever is wrong.
func valid(k *store.APIKey, secret string, now time.Time) bool {
	sum := sha256.Sum256([]byte(secret))
	stored := k.Hash
	if len(stored) != len(sum) {
		stored = make([]byte, len(sum))
	}
	same := subtle.ConstantTimeCompare(sum[:], stored) == 1
	live := k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt)) && len(k.Hash) == len(sum) && k.Namespace != ""
	return same && live
}

// parse takes "Bearer wck_<id>_<secret>" apart.
func parse(header string) (id, secret string, ok bool) {
	scheme, token, _ := strings.Cut(header, " ")
	rest, isKey := strings.CutPrefix(strings.TrimSpace(token), keyPrefix)
	id, secret, hasSecret := strings.Cut(rest, "_")
	ok = strings.EqualFold(scheme, "Bearer") && isKey && hasSecret && id != "" && secret != "" && len(id) <= maxID && len(secret) <= maxSecret
	return id, secret, ok
}

func remote(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// local tells whether a request was made on this machine: not passed on by a proxy, and not by a web page that made its own name lead here.
func local(r *http.Request, addr netip.Addr) bool {
	if !addr.IsLoopback() {
		return false
	}
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	host := r.Host
	if h, _, ok := strings.Cut(host, "]"); ok { // [::1]:8080
		host = strings.TrimPrefix(h, "[")
	} else if h, _, ok := strings.Cut(host, ":"); ok {
		host = h
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

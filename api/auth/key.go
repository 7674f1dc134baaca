package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/store"
)

const (
	keyPrefix = "wck_"
	maxID     = 64
	maxSecret = 256
)

// NewKey makes a credential for a namespace: what to store, and the text to hand out, which can never be had again. expires may be zero: never.
func NewKey(namespace, note string, now, expires time.Time) (store.APIKey, string) {
	id, secret := token(10), token(32)
	sum := sha256.Sum256([]byte(secret))
	return store.APIKey{ID: id, Namespace: namespace, Note: note, Hash: sum[:], CreatedAt: now, ExpiresAt: expires}, keyPrefix + id + "_" + secret
}

// token returns n random bytes as text without characters that need care in a shell, a URL or a header, and without "_", which parts id and secret.
func token(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckNamespace refuses what subjects cannot carry, and the token of queues that all namespaces share.
func CheckNamespace(namespace string) error {
	if !namespacePattern.MatchString(namespace) || namespace == job.SharedNamespace {
		return &fielderr.FieldError{Field: "namespace", Given: namespace, Allowed: "1 to 64 letters, digits, _ and -, and not _ alone"}
	}
	return nil
}

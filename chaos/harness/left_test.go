package harness

import (
	"testing"

	"github.com/google/uuid"
)

func TestIDsOfBothDatabasesAreRead(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	for _, from := range []any{id[:], id.String(), []byte(id.String())} {
		var got rowID
		if err := got.Scan(from); err != nil || string(got) != id.String() {
			t.Errorf("%v: %q, %v", from, got, err)
		}
	}
	var got rowID
	if err := got.Scan([]byte{1, 2}); err == nil {
		t.Errorf("two bytes are read as %q", got)
	}
}

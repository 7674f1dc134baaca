package fault

import (
	"context"
	"fmt"
	"time"
)

// Retry calls until it is answered. Each try has its time, a pause follows it, and again tells of which errors another try comes; nil: of all. Where ctx ends
// first, the error is why, and the last.
func Retry(ctx context.Context, try, pause time.Duration, again func(error) bool, call func(ctx context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, try)
		err := call(one)
		cancel()
		if err == nil || again != nil && !again(err) {
			return err
		}
		if Wait(ctx, pause) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// get is answered with 200, or an error.
func get(ctx context.Context, client *http.Client, url string) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return nil, nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s answers %s: %s", url, res.Status, body)
	}
	return res.Header, body, nil
}

// healthy is nil where the address answers 200.
func healthy(ctx context.Context, client *http.Client, url string) error {
	_, _, err := get(ctx, client, url)
	return err
}

// getJSON reads what it is answered.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	_, body, err := get(ctx, client, url)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	return nil
}

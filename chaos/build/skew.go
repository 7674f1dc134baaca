package build

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// skewedSource is a file more of package time, with the function that Now is made to call.
//
//go:embed skewed_now.txt
var skewedSource string

const (
	plainNow  = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	skewedNow = "func Now() Time {\n\tsec, nsec, mono := skewedNow()\n"
)

// skewTime makes Now in the text of the standard library's time.go call skewedNow. The line numbers stay.
func skewTime(text string) (string, error) {
	if n := strings.Count(text, plainNow); n != 1 {
		return "", fmt.Errorf("time.Now does not begin as it did when this was written: %q is there %d times; allowed: once", plainNow, n)
	}
	if strings.Contains(text, "skewedNow") {
		return "", errors.New("package time has a skewedNow already")
	}
	return strings.Replace(text, plainNow, skewedNow, 1), nil
}

// skewedTime writes an overlay for the go command, in a folder that remove removes.
func skewedTime(ctx context.Context) (overlay string, remove func(), err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return "", nil, fmt.Errorf("ask for GOROOT: %w", err)
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	library := filepath.Join(goroot, "src", "time")
	text, err := os.ReadFile(filepath.Join(library, "time.go")) //nolint:gosec // of the go command
	if err != nil {
		return "", nil, fmt.Errorf("read package time: %w", err)
	}
	patched, err := skewTime(string(text))
	if err != nil {
		return "", nil, fmt.Errorf("time.go of %s: %w", version, err)
	}
	folder, err := os.MkdirTemp("", "waterclock-overlay-")
	if err != nil {
		return "", nil, fmt.Errorf("make overlay: %w", err)
	}
	remove = func() { _ = os.RemoveAll(folder) } // what is left in the folder for temporary files harms nobody
	files := map[string]string{"time.go": patched, "waterclock_skew.go": skewedSource}
	replace := map[string]string{}
	for name, content := range files {
		replace[filepath.Join(library, name)] = filepath.Join(folder, name)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			remove()
			return "", nil, fmt.Errorf("write overlay: %w", err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	overlay = filepath.Join(folder, "overlay.json")
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("write overlay: %w", err)
	}
	return overlay, remove, nil
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterclock-io/waterclock/bench/report"
)

// show shows an earlier run.
func show(p plan) error {
	b, err := os.ReadFile(p.from)
	if err != nil {
		return err
	}
	var r report.Report
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", p.from, err)
	}
	return write(&r, p)
}

// write prints the tables and writes them, the JSON, the pictures and, where one is asked for, the page.
func write(r *report.Report, p plan) error {
	var tables, raw bytes.Buffer
	if err := errors.Join(r.WriteMarkdown(&tables), r.WriteJSON(&raw)); err != nil {
		return err
	}
	fmt.Print(tables.String())
	files := map[string][]byte{filepath.Join(p.out, "bench.md"): tables.Bytes(), filepath.Join(p.out, "bench.json"): raw.Bytes()}
	for name, picture := range r.Charts() {
		files[filepath.Join(p.out, name)] = picture
	}
	if p.page != "" {
		old, err := os.ReadFile(p.page)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		pictures := strings.TrimSuffix(p.page, filepath.Ext(p.page))
		if files[p.page], err = r.Page(old, filepath.Base(pictures)); err != nil {
			return fmt.Errorf("%s: %w", p.page, err)
		}
		for name, picture := range r.Charts() {
			files[filepath.Join(pictures, name)] = picture
		}
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

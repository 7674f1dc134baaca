package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"go.yaml.in/yaml/v3"
)

// maxFile bounds what is read as a configuration; one that is larger is some other file.
const maxFile = 1 << 20

// file loads the YAML file. It walks the document itself, since only its nodes know on which line a key stands.
func (l *loader) file(path, origin string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("configuration file of %s: %w", origin, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fmt.Errorf("configuration file of %s: %w", origin, err)
	}
	if len(text) > maxFile {
		return fmt.Errorf("configuration file of %s: %s: given more than 1 MiB, allowed: a YAML file of at most 1 MiB", origin, path)
	}
	root, err := document(text)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	w := &walker{loader: l, path: path, values: map[string]any{}}
	if root != nil {
		w.section("", root)
	}
	if err := l.merged.Load(confmap.Provider(w.values, "."), nil); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

// document returns the one document of a YAML text, nil where it holds nothing but comments.
func document(text []byte) (*yaml.Node, error) {
	var first, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: given a second document, allowed: one", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(first.Content) == 0 {
		return nil, nil
	}
	return first.Content[0], nil
}

type walker struct {
	*loader
	path   string
	values map[string]any
}

func (w *walker) at(n *yaml.Node) string { return w.path + ":" + strconv.Itoa(n.Line) }

// section reads the keys below key; an empty section, all of whose lines are comments, is fine.
func (w *walker) section(key string, n *yaml.Node) {
	n = target(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		name := key
		if name == "" {
			name = "the file"
		}
		w.refuse(w.at(n), name, describe(n), "keys and their values")
		return
	}
	w.pairs(key, n, func(name string, k, v *yaml.Node) {
		full := strings.TrimPrefix(key+"."+name, ".")
		switch {
		case sections[full]:
			w.section(full, v)
		case byKey[full] != nil:
			w.setting(full, k, v)
		default:
			w.problems = append(w.problems, &Error{Origin: w.at(k), Key: full, Near: nearest(full, knownKeys())})
		}
	})
}

// pairs visits the pairs of a mapping and refuses a key that stands there twice, of which YAML would silently take the last.
func (w *walker) pairs(key string, n *yaml.Node, visit func(name string, k, v *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name := k.Value
		if k.Kind != yaml.ScalarNode {
			w.refuse(w.at(k), "a key", describe(k), "a name")
			continue
		}
		if line, twice := seen[name]; twice {
			w.refuse(w.at(k), strings.TrimPrefix(key+"."+name, "."), "a second time", "once; it stands on line "+strconv.Itoa(line)+" already")
			continue
		}
		seen[name] = k.Line
		visit(name, k, v)
	}
}

func (w *walker) setting(key string, k, n *yaml.Node) {
	n = target(n)
	origin, allowed := w.at(k), byKey[key].allowed
	switch fieldType(key).Kind() {
	case reflect.Slice:
		items, ok := texts(n)
		if !ok {
			w.refuse(origin, key, describe(n), "a list of "+allowed)
			return
		}
		if w.check(key, origin, items, strconv.Quote(strings.Join(items, ","))) {
			w.values[key] = items
		}
	case reflect.Map:
		w.labels(key, origin, n)
	default:
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			w.refuse(origin, key, describe(n), allowed)
			return
		}
		if v, ok := w.value(key, origin, n.Value); ok {
			w.values[key] = v
		}
	}
}

func (w *walker) labels(key, origin string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		w.refuse(origin, key, describe(n), byKey[key].allowed)
		return
	}
	m := map[string]string{}
	w.pairs(key, n, func(name string, k, v *yaml.Node) {
		v = target(v)
		if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
			w.refuse(w.at(k), key+"."+name, describe(v), byKey[key].allowed)
			return
		}
		m[name] = v.Value
	})
	if w.check(key, origin, m, strconv.Quote(format(m))) {
		w.values[key] = m
	}
}

func texts(n *yaml.Node) ([]string, bool) {
	if n.Kind != yaml.SequenceNode {
		return nil, false
	}
	items := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		item = target(item)
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return nil, false
		}
		items = append(items, item.Value)
	}
	return items, true
}

// target follows an alias to what it stands for.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and their values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	default:
		return strconv.Quote(mask(n.Value))
	}
}

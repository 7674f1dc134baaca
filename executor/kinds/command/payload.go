package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

// Payload is what a job of this kind carries, as JSON. Fields it does not have are refused.
type Payload struct {
	// Argv is the argument vector: 1 to 1024 arguments without NUL bytes. Without a slash, the first is looked up on the executor's PATH.
	Argv []string `json:"argv"`
	// Env is added to PATH, HOME, LANG, TZ and TMPDIR of the executor. Names of Waterclock's own (WATERCLOCK_…) are refused; with an allow-list also those by which
	// a loader or an interpreter would be made to run something else.
	Env map[string]string `json:"env"`
	// Dir is the working directory, absolute; empty means the executor's.
	Dir string `json:"dir"`
	// Stdin is the command's standard input.
	Stdin string `json:"stdin"`
}

// Limits of a payload.
const (
	maxArgs    = 1024
	maxVector  = 128 << 10 // bytes of argv and env together; more may not fit the kernel's limit
	maxPayload = 16 << 20
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

const ownPrefix = "WATERCLOCK_"

// hijackers are variables that make common programs run what their caller did not ask for. The list is a second line: the first is to allow programs that do
// what their arguments say.
var (
	hijackers = []string{
		"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "PATH", "GCONV_PATH", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
		"PERL5OPT", "PERL5LIB", "PERL5DB", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "RUBYOPT", "RUBYLIB", "EDITOR", "VISUAL", "PAGER", "ZDOTDIR",
	}
	hijackerPrefixes = []string{"LD_", "DYLD_", "GIT_", "GLIBC_"}
)

func decode(b []byte, trusted bool) (*Payload, error) {
	if len(b) > maxPayload {
		return nil, &fielderr.FieldError{Field: "payload", Given: strconv.Itoa(len(b)) + " bytes", Allowed: "at most " + strconv.Itoa(maxPayload)}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	p := new(Payload)
	err := d.Decode(p)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("payload of kind %s: %w; allowed: a JSON object of argv, env, dir and stdin", Kind, err)
	}
	return p, p.check(trusted)
}

func (p *Payload) check(trusted bool) error {
	size := 0
	if len(p.Argv) == 0 || p.Argv[0] == "" || len(p.Argv) > maxArgs {
		return &fielderr.FieldError{Field: "argv", Given: strconv.Itoa(len(p.Argv)) + " arguments", Allowed: fmt.Sprintf("1 to %d, the first not empty", maxArgs)}
	}
	for i, arg := range p.Argv {
		size += len(arg) + 1
		if strings.ContainsRune(arg, 0) {
			return &fielderr.FieldError{Field: fmt.Sprintf("argv[%d]", i), Given: arg, Reason: "contains a NUL byte", Allowed: "text without one"}
		}
	}
	for name, value := range p.Env {
		size += len(name) + len(value) + 2
		// Values are not repeated: they may be secrets.
		if !envName.MatchString(name) || strings.HasPrefix(name, ownPrefix) {
			return &fielderr.FieldError{Field: "env", Given: name, Allowed: "names of letters, digits and _ that do not begin with a digit or " + ownPrefix}
		}
		if strings.ContainsRune(value, 0) {
			return &fielderr.FieldError{Field: "env." + name, Reason: "contains a NUL byte", Allowed: "text without one"}
		}
		if !trusted && hijacks(name) {
			return &fielderr.FieldError{Field: "env", Given: name, Reason: "may make an allowed command run another", Allowed: "names that do not, where an allow-list is in force"}
		}
	}
	if size > maxVector {
		return &fielderr.FieldError{Field: "argv", Given: strconv.Itoa(size) + " bytes with env", Allowed: "at most " + strconv.Itoa(maxVector)}
	}
	if p.Dir != "" && (!filepath.IsAbs(p.Dir) || strings.ContainsRune(p.Dir, 0)) {
		return &fielderr.FieldError{Field: "dir", Given: p.Dir, Allowed: "an absolute path"}
	}
	return nil
}

func hijacks(name string) bool {
	return slices.Contains(hijackers, name) || slices.ContainsFunc(hijackerPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

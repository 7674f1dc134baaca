package cli

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// workFlags say what a job does: a command, an HTTP call, or the work of one's own handler.
type workFlags struct {
	env             []string
	dir, stdinFile  string
	method          string
	headers         []string
	body, bodyFile  string
	kind, payload   string
	commandFlagList []string
	httpFlagList    []string
}

func (f *workFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.env, "env", nil, "command: variable for it, NAME=VALUE (repeatable)")
	flags.StringVar(&f.dir, "dir", "", "command: working directory")
	flags.StringVar(&f.stdinFile, "stdin-file", "", "command: file with its standard input, a text; - is the standard input of this command")
	flags.StringVar(&f.method, "http", "", "call the URL that is the argument, with this HTTP method")
	flags.StringArrayVar(&f.headers, "header", nil, "HTTP call: header, NAME: VALUE (repeatable)")
	flags.StringVar(&f.body, "body", "", "HTTP call: body")
	flags.StringVar(&f.bodyFile, "body-file", "", "HTTP call: file with the body, a text; - is the standard input")
	flags.StringVar(&f.kind, "kind", "", "kind of a handler of your own")
	flags.StringVar(&f.payload, "payload", "", "own handler: its input as TEXT or @FILE; @- is the standard input")
	f.commandFlagList = []string{"env", "dir", "stdin-file"}
	f.httpFlagList = []string{"header", "body", "body-file"}
}

// apply puts kind and input into the spec and returns the names of the fields it set. Command is what stands after --, nil where there is
// no --; urls is what stands before it.
func (f *workFlags) apply(spec *waterclockv1.JobSpec, flags *pflag.FlagSet, urls, command []string, stdin io.Reader) ([]string, error) {
	isHTTP, isOwn := len(given(flags, "http")) > 0, len(given(flags, "kind", "payload")) > 0
	var ways []string
	if command != nil {
		ways = append(ways, "a command after --")
	}
	if isHTTP {
		ways = append(ways, "--http")
	}
	if isOwn {
		ways = append(ways, "--kind, --payload")
	}
	if len(ways) > 1 {
		return nil, &fielderr.FieldError{Field: "work", Given: strings.Join(ways, " and "), Allowed: "one of them"}
	}
	if wrong := given(flags, f.commandFlagList...); command == nil && len(wrong) > 0 {
		return nil, &fielderr.FieldError{Field: wrong[0], Given: flags.Lookup(wrong[0][2:]).Value.String(), Allowed: "only with a command after --"}
	}
	if wrong := given(flags, f.httpFlagList...); !isHTTP && len(wrong) > 0 {
		return nil, &fielderr.FieldError{Field: wrong[0], Given: flags.Lookup(wrong[0][2:]).Value.String(), Allowed: "only with --http"}
	}
	if !isHTTP && len(urls) > 0 {
		return nil, &fielderr.FieldError{Field: "argument", Given: urls[0], Allowed: "a command after --, or one URL with --http METHOD"}
	}
	switch {
	case command != nil:
		spec.Kind = "exec"
		return []string{"kind", "json"}, f.applyCommand(spec, command, stdin)
	case isHTTP:
		spec.Kind = "http"
		return []string{"kind", "json"}, f.applyHTTP(spec, flags, urls, stdin)
	case isOwn:
		return f.applyOwn(spec, flags, stdin)
	default:
		return nil, nil
	}
}

func (f *workFlags) applyCommand(spec *waterclockv1.JobSpec, argv []string, stdin io.Reader) error {
	if len(argv) == 0 || argv[0] == "" {
		return &fielderr.FieldError{Field: "command", Allowed: "a program and its arguments after --"}
	}
	list := make([]any, len(argv))
	for i, a := range argv {
		list[i] = a
	}
	input := map[string]any{"argv": list}
	if len(f.env) > 0 {
		env, err := pairs("--env", f.env, "=", "NAME=VALUE")
		if err != nil {
			return err
		}
		input["env"] = env
	}
	if f.dir != "" {
		input["dir"] = f.dir
	}
	if f.stdinFile != "" {
		text, err := readInput("--stdin-file", f.stdinFile, stdin)
		if err != nil {
			return err
		}
		input["stdin"] = string(text)
	}
	return setJSON(spec, input)
}

var httpMethod = regexp.MustCompile(`^[A-Za-z]{1,32}$`)

func (f *workFlags) applyHTTP(spec *waterclockv1.JobSpec, flags *pflag.FlagSet, urls []string, stdin io.Reader) error {
	if !httpMethod.MatchString(f.method) {
		return &fielderr.FieldError{Field: "--http", Given: f.method, Allowed: "an HTTP method such as GET or POST, with the URL as the argument"}
	}
	if len(urls) != 1 {
		return &fielderr.FieldError{Field: "URL", Given: strings.Join(urls, " "), Allowed: "one URL as the argument of --http METHOD"}
	}
	u, err := url.Parse(urls[0])
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return &fielderr.FieldError{Field: "URL", Given: urls[0], Allowed: "an http:// or https:// address"}
	}
	input := map[string]any{"method": strings.ToUpper(f.method), "url": urls[0]}
	if len(f.headers) > 0 {
		headers, err := pairs("--header", f.headers, ":", "NAME: VALUE")
		if err != nil {
			return err
		}
		input["headers"] = headers
	}
	if both := given(flags, "body", "body-file"); len(both) > 1 {
		return &fielderr.FieldError{Field: "body", Given: "--body and --body-file", Allowed: "one of them"}
	}
	if f.body != "" {
		input["body"] = f.body
	}
	if f.bodyFile != "" {
		text, err := readInput("--body-file", f.bodyFile, stdin)
		if err != nil {
			return err
		}
		input["body"] = string(text)
	}
	return setJSON(spec, input)
}

func (f *workFlags) applyOwn(spec *waterclockv1.JobSpec, flags *pflag.FlagSet, stdin io.Reader) ([]string, error) {
	var fields []string
	if len(given(flags, "kind")) > 0 {
		spec.Kind = f.kind
		fields = append(fields, "kind")
	}
	if len(given(flags, "payload")) > 0 {
		payload := []byte(f.payload)
		if path, isFile := strings.CutPrefix(f.payload, "@"); isFile {
			var err error
			if payload, err = readInput("--payload", path, stdin); err != nil {
				return nil, err
			}
		}
		if len(payload) > job.MaxPayload {
			return nil, tooLarge("--payload")
		}
		spec.Input = &waterclockv1.JobSpec_Payload{Payload: payload}
		fields = append(fields, "payload")
	}
	return fields, nil
}

// setJSON makes input the JSON input of the job. Texts that JSON cannot hold are refused: the server would get others than were given.
func setJSON(spec *waterclockv1.JobSpec, input map[string]any) error {
	value, err := structpb.NewStruct(input)
	if err != nil {
		return &fielderr.FieldError{Field: "command or call", Given: "bytes that are no text", Reason: "cannot be sent", Allowed: "UTF-8"}
	}
	spec.Input = &waterclockv1.JobSpec_Json{Json: structpb.NewStructValue(value)}
	return nil
}

// pairs splits texts such as NAME=VALUE.
func pairs(flag string, texts []string, separator, form string) (map[string]any, error) {
	m := make(map[string]any, len(texts))
	for _, text := range texts {
		name, value, found := strings.Cut(text, separator)
		name = strings.TrimSpace(name)
		if separator == ":" {
			value = strings.TrimSpace(value)
		}
		if !found || name == "" {
			return nil, &fielderr.FieldError{Field: flag, Given: text, Allowed: form}
		}
		if _, twice := m[name]; twice {
			return nil, &fielderr.FieldError{Field: flag, Given: text, Reason: "is there twice", Allowed: "each name once"}
		}
		m[name] = value
	}
	return m, nil
}

func tooLarge(flag string) error {
	return &fielderr.FieldError{Field: flag, Given: "more than 256 KiB", Allowed: "at most 256 KiB; put more into a store of your own and send its address"}
}

// readInput reads a whole file, or standard input for "-", as far as a payload may be long. Only --payload takes what is no text.
func readInput(flag, path string, stdin io.Reader) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, &fielderr.FieldError{Field: flag, Given: path, Reason: "cannot be read (" + err.Error() + ")", Allowed: "a file"}
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, job.MaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(b) > job.MaxPayload {
		return nil, tooLarge(flag)
	}
	if flag != "--payload" && !utf8.Valid(b) {
		return nil, &fielderr.FieldError{Field: flag, Given: path, Reason: "holds bytes that are no text", Allowed: "a UTF-8 text"}
	}
	return b, nil
}

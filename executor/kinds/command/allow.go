package command

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/job/fielderr"
)

// inherited is what a command gets of the executor's environment: what programs need to work at all, and nothing that may be secret.
var inherited = []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"}

func (c *Config) allowsAll() bool { return slices.Contains(c.Allow, AllowAll) }

// resolve returns the absolute path to execute if it is allowed.
func (c *Config) resolve(p *Payload) (string, error) {
	name := p.Argv[0]
	path, err := c.find(name, p.Dir)
	if err != nil {
		return "", err
	}
	if c.allowsAll() || slices.Contains(c.Allow, path) {
		return path, nil
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && slices.Contains(c.Allow, target) {
		// By this name, not through the link, which may lead elsewhere by then.
		return target, nil
	}
	allowed := "nothing, for the executor was started without an allow-list of commands"
	if len(c.Allow) > 0 {
		allowed = strings.Join(c.Allow, ", ")
	}
	return "", &fielderr.FieldError{Field: "argv[0]", Given: name, Allowed: allowed}
}

// find makes an absolute path of the command's name. Whether there is something to execute at it is seen when it is started.
func (c *Config) find(name, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) {
			return filepath.Clean(name), nil
		}
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("argv[0]: %w", err)
		}
		return path, nil
	}
	search, _ := c.lookupEnv("PATH")
	for _, folder := range filepath.SplitList(search) {
		path := filepath.Join(folder, name)
		// A relative folder would let whoever writes to the working directory choose the program.
		if filepath.IsAbs(folder) && unix.Access(path, unix.X_OK) == nil && !isFolder(path) {
			return path, nil
		}
	}
	return "", &fielderr.FieldError{Field: "argv[0]", Given: name, Reason: "is not found", Allowed: "a path, or an executable in the executor's PATH " + strconv.Quote(search)}
}

func isFolder(path string) bool {
	var s unix.Stat_t
	return unix.Stat(path, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR
}

// environment is the whole environment of the command, sorted: later ones of inherited, payload and Waterclock's own win.
func (c *Config) environment(p *Payload, run *executor.Run) []string {
	env := make(map[string]string, len(inherited)+len(p.Env)+7)
	for _, name := range inherited {
		if value, ok := c.lookupEnv(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, p.Env)
	env[ownPrefix+"JOB_ID"] = run.JobID.String()
	env[ownPrefix+"RUN_ID"] = run.ID.String()
	env[ownPrefix+"NAMESPACE"] = run.Namespace
	env[ownPrefix+"ATTEMPT"] = strconv.Itoa(int(run.Attempt))
	env[ownPrefix+"DISPATCH"] = strconv.FormatInt(run.Dispatch, 10)
	env[ownPrefix+"IDEMPOTENCY_KEY"] = run.IdempotencyKey()
	env[ownPrefix+"SCHEDULED_AT"] = run.ScheduledAt.UTC().Format(time.RFC3339Nano)
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

package config_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/config"
	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/serve"
)

const deployFolder = "../../../../deploy"

// imageName is that of the containers which run waterclock; all others are of no concern here.
const imageName = "waterclock:local"

// process is one call of waterclock as a file in deploy/ makes it.
type process struct {
	args    []string
	environ []string
}

// What the files in deploy/ start must be commands of this binary, with flags that they have and a configuration that they accept.
func TestDeployedProcessesAreAccepted(t *testing.T) {
	t.Parallel()
	image := dockerfile(t)
	processes := map[string]process{"Dockerfile": image, "waterclock.service": unit(t, "waterclock.service")}
	for _, file := range []string{"compose.yaml", "compose.cluster.yaml"} {
		before := len(processes)
		for name, p := range compose(t, file) {
			if len(p.args) == 0 {
				p.args = image.args
			}
			p.environ = append(slices.Clone(image.environ), p.environ...)
			processes[file+"/"+name] = p
		}
		if len(processes)-before != 5 { // migrate and the four roles
			t.Errorf("%s has %d services of the image %s, not 5", file, len(processes)-before, imageName)
		}
	}
	for name, p := range processes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := accept(p); err != nil {
				t.Errorf("waterclock %s\nwith %s\n%v", strings.Join(p.args, " "), strings.Join(p.environ, " "), err)
			}
		})
	}
}

// The check is worth something only if it finds what is wrong.
func TestDeployedProcessesAreRefused(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]process{
		"no such command":  {args: []string{"scheduler"}},
		"no such flag":     {args: []string{"planner", "--planner.speed=9"}},
		"bad flag value":   {args: []string{"executor", "--executor.slots=none"}},
		"no such variable": {args: []string{"api"}, environ: []string{"WATERCLOCK_HTTP_ADDRESS=127.0.0.1:1"}},
		"bad variable":     {args: []string{"api"}, environ: []string{"WATERCLOCK_NATS_REPLICAS=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := accept(p); err == nil {
				t.Error("was accepted")
			}
		})
	}
}

// accept finds the command of a process, reads its flags, and loads its configuration, all but runs it.
func accept(p process) error {
	root := &cobra.Command{Use: "waterclock"}
	root.AddCommand(serve.Commands(serve.Env{Stdout: io.Discard, Stderr: io.Discard, Environ: p.environ})...)
	found, rest, err := root.Find(p.args)
	if err != nil {
		return err
	}
	if found == root || found.HasSubCommands() {
		return fmt.Errorf("%q names no command that can be run", strings.Join(p.args, " "))
	}
	found.RunE = func(c *cobra.Command, _ []string) error {
		_, err := config.Load(c.Flags(), p.environ)
		return err
	}
	root.SetArgs(append(strings.Fields(found.CommandPath())[1:], rest...))
	root.SilenceErrors, root.SilenceUsage = true, true
	return root.ExecuteContext(context.Background())
}

var (
	interpolated = regexp.MustCompile(`\$\{[A-Z_]+(:?[?-][^}]*)?\}`)
	dockerEnv    = regexp.MustCompile(`(?m)^ENV (WATERCLOCK_[A-Z_]+=\S+)$`)
	dockerCmd    = regexp.MustCompile(`(?m)^CMD \["([a-z]+)"\]$`)
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func dockerfile(t *testing.T) process {
	t.Helper()
	text := read(t, "Dockerfile")
	var p process
	for _, m := range dockerEnv.FindAllStringSubmatch(text, -1) {
		p.environ = append(p.environ, m[1])
	}
	if strings.Count(text, "WATERCLOCK_") != len(p.environ) {
		t.Errorf("the Dockerfile names variables in another form than ENV WATERCLOCK_…=value: %d of %d understood", len(p.environ), strings.Count(text, "WATERCLOCK_"))
	}
	m := dockerCmd.FindStringSubmatch(text)
	if m == nil {
		t.Fatal("the Dockerfile has no CMD of one word")
	}
	p.args = m[1:]
	return p
}

// compose returns the services of a compose file that run waterclock, with dummies where the file asks for the caller's own values.
func compose(t *testing.T, file string) map[string]process {
	t.Helper()
	var doc struct {
		Services map[string]struct {
			Image       string            `yaml:"image"`
			Command     []string          `yaml:"command"`
			Environment map[string]string `yaml:"environment"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal([]byte(read(t, file)), &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	out := map[string]process{}
	for name, s := range doc.Services {
		if s.Image != imageName {
			continue
		}
		p := process{args: s.Command}
		for _, variable := range slices.Sorted(maps.Keys(s.Environment)) {
			p.environ = append(p.environ, variable+"="+interpolated.ReplaceAllString(s.Environment[variable], "dummy"))
		}
		out[name] = p
	}
	return out
}

// unit returns the process of a systemd unit. The configuration file that it names is installed from the sample beside it.
func unit(t *testing.T, file string) process {
	t.Helper()
	var p process
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSpace(line)
		if start, found := strings.CutPrefix(line, "ExecStart="); found {
			start = strings.ReplaceAll(start, "/etc/waterclock/waterclock.yaml", filepath.Join(deployFolder, "waterclock.yaml"))
			p.args = strings.Fields(start)[1:]
		}
		if variable, found := strings.CutPrefix(line, "Environment="); found {
			p.environ = append(p.environ, variable)
		}
	}
	if len(p.args) == 0 {
		t.Fatalf("%s starts nothing", file)
	}
	return p
}

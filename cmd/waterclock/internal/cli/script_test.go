package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
)

var update = flag.Bool("update", false, "write the golden files within the scripts")

// The scripts of testdata run the program in this process against a fake server of their own, over HTTP on loopback. Their commands:
//
//	waterclock ARGS…                   run it; it must exit with 0
//	exits CODE ARGS…                   run it; it must exit with CODE
//	answer RPC FILE                    what the RPC answers from now on, JSON messages; +RPC: after the next call
//	fails RPC CODE MESSAGE [FIELD|GIVEN|ALLOWED|REASON…]   it answers with an error
//	breaks RPC FILE CODE               it answers with messages and then an error
//	asked                              print what was asked of the server since the last time
//
// The variables TTY (1 makes a terminal of the outputs) and STDIN (a file) set the scene; it is 2026-04-23T22:00:00Z.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			f, url := newFake(e.T().(testing.TB))
			e.Values["fake"] = f
			e.Setenv("WATERCLOCK_SERVER", url)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"waterclock": func(ts *testscript.TestScript, neg bool, args []string) { runScript(ts, neg, "0", args) },
			"exits":      func(ts *testscript.TestScript, neg bool, args []string) { runScript(ts, neg, args[0], args[1:]) },
			"answer": func(ts *testscript.TestScript, _ bool, args []string) {
				fakeOf(ts).lay(args[0], answer{messages: ts.ReadFile(args[1])})
			},
			"fails": func(ts *testscript.TestScript, _ bool, args []string) {
				fakeOf(ts).lay(args[0], answer{err: failure(args[1], args[2], args[3:]...)})
			},
			"breaks": func(ts *testscript.TestScript, _ bool, args []string) {
				fakeOf(ts).lay(args[0], answer{messages: ts.ReadFile(args[1]), err: failure(args[2], "broken")})
			},
			"asked": func(ts *testscript.TestScript, _ bool, _ []string) {
				for _, r := range fakeOf(ts).asked() {
					raw, err := protojson.Marshal(r.message)
					ts.Check(err)
					var b bytes.Buffer
					ts.Check(json.Indent(&b, raw, "", "  "))
					if r.key != "" {
						r.key = " (" + r.key + ")"
					}
					fmt.Fprintf(ts.Stdout(), "%s%s %s\n", r.rpc, r.key, b.String())
				}
			},
		},
	})
}

func fakeOf(ts *testscript.TestScript) *fake { return ts.Value("fake").(*fake) }

func runScript(ts *testscript.TestScript, neg bool, want string, args []string) {
	if neg {
		ts.Fatalf("use exits CODE")
	}
	var stdin io.Reader = strings.NewReader("")
	if path := ts.Getenv("STDIN"); path != "" {
		stdin = strings.NewReader(ts.ReadFile(path))
	}
	got := run(context.Background(), Env{
		Stdin: stdin, Stdout: ts.Stdout(), Stderr: ts.Stderr(), Getenv: ts.Getenv, Now: testNow,
		IsTerminal: func(io.Writer) bool { return ts.Getenv("TTY") == "1" },
	}, args)
	if code, err := strconv.Atoi(want); err != nil || code != got {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

func testNow() time.Time { return time.Date(2026, 4, 23, 22, 0, 0, 0, time.UTC) }

// run does what main does, with streams that are opened again at once.
func run(ctx context.Context, env Env, args []string) int {
	a := &app{Env: env, reconnect: time.Microsecond}
	root := &cobra.Command{Use: "waterclock"}
	root.AddCommand(a.commands()...)
	root.SetArgs(args)
	return Execute(ctx, root, env)
}

func TestSystemIsNoTerminalForAFile(t *testing.T) {
	t.Parallel()
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if env := System(); env.IsTerminal(f) || env.IsTerminal(&bytes.Buffer{}) || len(Commands(env)) != 5 {
		t.Error("a file or a buffer passes for a terminal, or commands are missing")
	}
}

package crdb

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/store"
)

// source is the package's own text, read for the statements in it.
type source struct {
	set   *token.FileSet
	files map[string]*ast.File
	named map[string]ast.Expr // constants and variables of the package
}

func readSource(t *testing.T) *source {
	t.Helper()
	src := &source{set: token.NewFileSet(), files: map[string]*ast.File{}, named: map[string]ast.Expr{}}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(src.set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		src.files[name] = file
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for i, id := range v.Names {
						if i < len(v.Values) {
							src.named[id.Name] = v.Values[i]
						}
					}
				}
			}
		}
	}
	return src
}

// fold is the text of an expression as far as it is known without running it, and whether that is all of it.
func (src *source) fold(e ast.Expr) (text string, whole bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, whole := src.fold(e.X)
		if e.Op != token.ADD || !whole {
			return left, false
		}
		right, whole := src.fold(e.Y)
		return left + right, whole
	case *ast.Ident:
		if init, ok := src.named[e.Name]; ok {
			return src.fold(init)
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.Ident); ok && f.Name == "insert" {
			table, _ := src.fold(e.Args[0])
			return "INSERT INTO " + table + " (", false
		}
	}
	return "", false
}

// statements are what in the source begins as SQL does: named texts by name, and those in functions by their beginning, each with its place.
func (src *source) statements() (named, inline map[string]string) {
	named, inline = map[string]string{}, map[string]string{}
	for name, init := range src.named {
		if text, _ := src.fold(init); verb.MatchString(text) {
			named[name] = src.set.Position(init.Pos()).String()
		}
	}
	for _, file := range src.files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || f.Name.Name == "insert" {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch e := n.(type) {
				case *ast.BinaryExpr, *ast.BasicLit:
					if text, _ := src.fold(e.(ast.Expr)); verb.MatchString(text) {
						inline[text] = src.set.Position(e.Pos()).String() + " in " + f.Name.Name
						return false
					}
				}
				return true
			})
		}
	}
	return named, inline
}

// No statement can be added to the package without a line in the catalogue, and so without being counted.
func TestEveryStatementIsListed(t *testing.T) {
	t.Parallel()
	named, inline := readSource(t).statements()
	if len(named) < 40 || len(inline) < 20 {
		t.Fatalf("only %d named and %d other statements were found", len(named), len(inline))
	}
	for name, at := range named {
		listed := slices.ContainsFunc(catalogue, func(e entry) bool { return e.name == name })
		if _, known := beginnings[name]; !listed && !known {
			t.Errorf("%s: %s is in no line of the catalogue", at, name)
		}
	}
	for text, at := range inline {
		known := nameOf(text) != ""
		for begin := range beginnings {
			known = known || strings.HasPrefix(text, begin)
		}
		if text == "SELECT " && (strings.HasSuffix(at, " in listQuery") || strings.HasSuffix(at, " in between")) {
			continue // whose columns are made by a function; those are listText, and readDue and readInFlight
		}
		if !known {
			t.Errorf("%s: %q is in no line of the catalogue", at, text)
		}
	}
	if text, _, err := listQuery(&store.JobQuery{}, 0, uuid.UUID{}, 1); err != nil || nameOf(text) != "list jobs" {
		t.Errorf("the statement of a list begins otherwise than its line in the catalogue: %s %v", text, err)
	}
	for _, p := range planned {
		if !slices.ContainsFunc(catalogue, func(e entry) bool { return e.text == p.text }) {
			t.Errorf("%s has its plan tested and is in no line of the catalogue", p.name)
		}
	}
	namesAreTheirOwn(t)
}

// namesAreTheirOwn finds lines of the catalogue whose name is not that of the text beside it.
func namesAreTheirOwn(t *testing.T) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "statements_catalogue_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) != 4 {
			return true
		}
		name, _ := lit.Elts[0].(*ast.BasicLit)
		if id, ok := lit.Elts[1].(*ast.Ident); ok && name != nil && name.Value != strconv.Quote(id.Name) && id.Name != "listText" {
			t.Errorf("the line %s has the text of %s", name.Value, id.Name)
		}
		return true
	})
}

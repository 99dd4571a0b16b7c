package integration

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	documents = "docs/contributing/requirements"
	traces    = "docs/contributing/requirements.md"
	// beyond is the section of the requirements page whose rows belong to no document.
	beyond = "Beyond"
)

// requirement is one table row, step or bullet point: the number of its document, the
// heading above it, and its text. The text of a row consists of as many leading cells as
// distinguish it from the other rows of its table.
type requirement struct{ document, section, key string }

func (r requirement) String() string { return r.document + ", " + r.section + ", " + r.key }

// trace is one line of docs/contributing/requirements.md, the page that lists where
// requirements are met.
type trace struct {
	requirement

	line                              int
	asks, state, where, tests, remark string
}

// cells returns the cells of a line of a Markdown table, or nil for other lines.
func cells(line string) []string {
	inner, table := strings.CutPrefix(line, "|")
	if !table {
		return nil
	}
	split := strings.Split(strings.TrimSuffix(strings.TrimSpace(inner), "|"), "|")
	for i := range split {
		split[i] = strings.TrimSpace(split[i])
	}
	return split
}

// heading returns the text of a heading of any level, and whether the line is a heading.
func heading(line string) (string, bool) {
	text := strings.TrimLeft(line, "#")
	return strings.TrimSpace(text), text != line && strings.HasPrefix(text, " ")
}

// requirementsOf returns the requirements of one document: all table rows and bullet
// points, and the numbered steps in its code block.
func requirementsOf(document, text string) []requirement {
	var all []requirement
	var section string
	var table [][]string
	code := false
	step := regexp.MustCompile(`^\d+\. `)
	add := func(key string) { all = append(all, requirement{document, section, key}) }
	// The added empty lines end the last table of the document.
	for line := range strings.SplitSeq(text+"\n\n", "\n") {
		if row := cells(line); row != nil && !code {
			table = append(table, row)
			continue
		}
		for _, key := range keysOf(table) {
			add(key)
		}
		table = nil
		title, titled := heading(line)
		point, pointed := strings.CutPrefix(strings.TrimSpace(line), "- ")
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
			if section == "処理シーケンス" && step.MatchString(line) {
				add(line)
			}
		case titled:
			section = title
		case pointed:
			add(point)
		}
	}
	return all
}

// keysOf returns the identifiers of a table's rows. The first two lines of the table are
// its header and separator.
func keysOf(table [][]string) []string {
	const head = 2
	if len(table) <= head {
		return nil
	}
	rows := table[head:]
	lead := func(row []string, count int) string {
		row = slices.DeleteFunc(slices.Clone(row), func(cell string) bool { return cell == "-" })
		return strings.Join(row[:min(count, len(row))], " / ")
	}
	keys := make([]string, len(rows))
	for i, row := range rows {
		for count := 1; count <= len(row); count++ {
			keys[i] = lead(row, count)
			same := func(other []string) bool { return lead(other, count) == keys[i] }
			if !slices.ContainsFunc(rows[:i], same) && !slices.ContainsFunc(rows[i+1:], same) {
				break
			}
		}
	}
	return keys
}

// tracesOf returns the lines of the requirements page. A heading such as `## 004 …`
// begins a document. The first cell of a row is the section: the heading in the document,
// with a translation in parentheses.
func tracesOf(text string) (all []trace, findings []string) {
	var current requirement
	inTable := false
	for i, line := range strings.Split(text, "\n") {
		if title, titled := heading(line); titled {
			if strings.HasPrefix(line, "## ") {
				current.document, _, _ = strings.Cut(title, " ")
			}
			continue
		}
		row := cells(line)
		switch {
		case row == nil:
			inTable = false
		case current.document == "" || !inTable && row[0] == "section" || strings.HasPrefix(row[0], "---"):
			inTable = true
		case len(row) != 7:
			findings = append(findings, fmt.Sprintf("%s:%d: has %d cells, not 7", traces, i+1, len(row)))
		default:
			current.section, _, _ = strings.Cut(row[0], " (")
			current.key = row[1]
			all = append(all, trace{current, i + 1, row[2], row[3], row[4], row[5], row[6]})
		}
	}
	return all, findings
}

// traceChecker compares the requirements page with the documents and the repository.
type traceChecker struct {
	repository   fs.FS
	requirements []requirement
	declared     map[string]map[string]bool
	quoted, file *regexp.Regexp
}

func newTraceChecker(t *testing.T) *traceChecker {
	c := &traceChecker{
		repository: os.DirFS(".."), declared: map[string]map[string]bool{},
		quoted: regexp.MustCompile("`([^`]+)`"), file: regexp.MustCompile(`^[\w./-]+\.(go|md|sql|yaml|yml)$`),
	}
	files, err := fs.Glob(c.repository, documents+"/*.md")
	require.NoError(t, err)
	for _, file := range files {
		document, _, _ := strings.Cut(path.Base(file), "-")
		c.requirements = append(c.requirements, requirementsOf(document, c.read(t, file))...)
	}
	return c
}

func (c *traceChecker) read(t *testing.T, file string) string {
	text, err := fs.ReadFile(c.repository, file)
	require.NoError(t, err)
	return string(text)
}

// findings returns all errors of the requirements page, one line per error.
func (c *traceChecker) findings(page string) []string {
	lines, findings := tracesOf(page)
	traced := map[requirement]int{}
	for _, line := range lines {
		traced[line.requirement]++
		switch {
		case line.document != beyond && !slices.Contains(c.requirements, line.requirement):
			findings = append(findings, line.finding("no document has this row"))
		case traced[line.requirement] > 1:
			findings = append(findings, line.finding("is a duplicate"))
		}
		findings = append(findings, c.check(line)...)
	}
	for _, r := range c.requirements {
		if traced[r] == 0 {
			findings = append(findings, fmt.Sprintf("%s: %s has no line for it", r, traces))
		}
	}
	return findings
}

func (l trace) finding(format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s: %s", traces, l.line, l.requirement, fmt.Sprintf(format, args...))
}

// check returns the errors of one line.
func (c *traceChecker) check(line trace) []string {
	var findings []string
	complain := func(format string, args ...any) { findings = append(findings, line.finding(format, args...)) }
	files, symbols := c.quotedNames(line.where)
	testFiles, tests := c.quotedNames(line.tests)
	switch line.state {
	case "built":
		if len(tests) == 0 {
			complain("is built but names no test")
		}
	case "differs":
		if line.remark == "none" {
			complain("differs but has no remark")
		}
	case "planned":
		if len(testFiles)+len(tests) > 0 {
			complain("is planned but names a test")
		}
		if line.remark == "none" {
			complain("is planned but has no remark")
		}
	default:
		complain("%q is not a state", line.state)
	}
	if len(files) == 0 && line.state != "planned" {
		complain("names no file")
	}
	if line.asks == "" {
		complain("does not describe the requirement")
	}
	remarked, _ := c.quotedNames(line.asks + line.remark)
	for _, file := range slices.Concat(files, testFiles, remarked) {
		if _, err := fs.Stat(c.repository, file); err != nil {
			complain("there is no file %s", file)
		}
	}
	for _, symbol := range symbols {
		if !c.declares(files, symbol) {
			complain("none of its files declares %s", symbol)
		}
	}
	testFiles = slices.DeleteFunc(testFiles, func(file string) bool { return !strings.HasSuffix(file, "_test.go") })
	for _, test := range tests {
		if !strings.HasPrefix(test, "Test") || !c.declares(testFiles, test) {
			complain("none of its files has a test %s", test)
		}
	}
	return findings
}

// quotedNames returns the texts in backticks of a cell: paths of files, and other names.
func (c *traceChecker) quotedNames(cell string) (files, symbols []string) {
	for _, match := range c.quoted.FindAllStringSubmatch(cell, -1) {
		if c.file.MatchString(match[1]) {
			files = append(files, match[1])
		} else {
			symbols = append(symbols, match[1])
		}
	}
	return files, symbols
}

func (c *traceChecker) declares(files []string, name string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		if c.declared[file] == nil {
			c.declared[file] = c.declarations(file)
		}
		return c.declared[file][name]
	})
}

// declarations returns the names that a Go file declares: package names, methods as
// Type.Method and subtests as Test/Subtest. It finds subtests whose name is a literal in
// t.Run or a key of a table of cases.
func (c *traceChecker) declarations(file string) map[string]bool {
	found := map[string]bool{}
	text, err := fs.ReadFile(c.repository, file)
	if err != nil || path.Ext(file) != ".go" {
		return found
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return found
	}
	for _, declaration := range parsed.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			name := receiver(d) + d.Name.Name
			found[name] = true
			ast.Inspect(d, func(node ast.Node) bool {
				if subtest, ok := subtest(node); ok {
					found[name+"/"+strings.ReplaceAll(subtest, " ", "_")] = true
				}
				return true
			})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					found[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						found[name.Name] = true
					}
				}
			}
		}
	}
	return found
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

func subtest(node ast.Node) (string, bool) {
	var name ast.Expr
	switch n := node.(type) {
	case *ast.CallExpr:
		if method, ok := n.Fun.(*ast.SelectorExpr); !ok || method.Sel.Name != "Run" || len(n.Args) != 2 {
			return "", false
		}
		name = n.Args[0]
	case *ast.KeyValueExpr:
		name = n.Key
	default:
		return "", false
	}
	literal, ok := name.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

// TestRequirementsAreTraced requires that the page has one correct line for each row of
// the five documents.
func TestRequirementsAreTraced(t *testing.T) {
	t.Parallel()
	c := newTraceChecker(t)
	count := map[string]int{}
	for _, r := range c.requirements {
		count[r.document]++
	}
	require.Equal(t, map[string]int{"000": 53, "001": 43, "002": 46, "003": 44, "004": 48}, count,
		"rows, steps and bullet points per document")
	require.Empty(t, c.findings(c.read(t, traces)))
}

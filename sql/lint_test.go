package sqlfiles_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// lexeme matches one token of SQL. Comments and constants come first, so that no rule
// applies to their content. The delimiters of a dollar-quoted body are tokens of their
// own, so the body is linted, too.
var lexeme = regexp.MustCompile(`(?s)` + strings.Join([]string{
	`--[^\n]*`,
	`/\*.*?\*/`,
	`'(?:[^']|'')*'`,
	`"(?:[^"]|"")*"`,
	`\$[A-Za-z_]*\$`,
	`[$:@]?[A-Za-z_][A-Za-z_0-9$]*`,
	`%\[?\d*\]?[a-zA-Z]`,
	`\$?[0-9][0-9.a-z]*`,
	`::|:=|=>|\.\.`,
	`[-+*/<>=~!@#%^&|?]+`,
	`\s+`,
	`.`,
}, "|"))

// These words do not depend on the search_path, because the grammar defines them:
// keywords before a parenthesis, functions with a syntax of their own, and types that are
// keywords.
var (
	beforeParenthesis = words(`all and any array as between by check conflict distinct else except exists filter from group having in include into is
		join key lateral like limit not null offset on only operator or order over partition primary references returning row rows select set some
		table then unique update using values when where within with coalesce cast extract greatest least nullif position trim`)
	grammarTypes = words(`bigint bit boolean char character decimal double float int integer interval numeric real smallint time timestamp varchar`)
	// afterThese matches tokens after which + and - are the sign of a number, and * means
	// all columns.
	afterThese = words(`( , [ . select returning when then else and or = :=`)
)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

var (
	isWord     = regexp.MustCompile(`^[A-Za-z_"]`)
	isOperator = regexp.MustCompile(`^[-+*/<>=~!@#%^&|?]+$`)
	isNumber   = regexp.MustCompile(`^[0-9]`)
	// dynamic matches constants from which functions build statements.
	dynamic = regexp.MustCompile(`^'\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b|::`)
	// isSQL matches Go strings that are SQL statements or parts of statements.
	isSQL = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|JOIN|AND|OR|ORDER BY|VALUES|SET|RETURNING|NOT|EXISTS|NULL)\b|[^A-Z]::[a-z"]|OPERATOR\(`)
)

type finding struct {
	offset    int
	text, fix string
}

// tokens returns the tokens of a statement without comments and white space.
func tokens(sql string) (found []finding) {
	for _, at := range lexeme.FindAllStringIndex(sql, -1) {
		if text := sql[at[0]:at[1]]; strings.TrimSpace(text) != "" && !strings.HasPrefix(text, "--") &&
			!strings.HasPrefix(text, "/*") {
			found = append(found, finding{offset: at[0], text: text})
		}
	}
	return append(found, finding{})
}

// lint returns names that depend on the search_path. If batched is set, it also returns
// unqualified operators, because a batch runs with the application's path, which may have
// other schemas before pg_catalog. Other statements run with a path that begins with
// pg_catalog, whose operators fit the types of Sexton's tables and of the system catalogs
// exactly.
func lint(sql string, batched bool) (found []finding) {
	all := tokens(sql)
	var before, last string
	depth, assigns := 0, -1
	if all[0].text == "," { // The comma continues the list of an UPDATE SET.
		assigns = 0
	}
	for i, at := range all[:len(all)-1] {
		text, next := strings.ToLower(at.text), all[i+1]
		called := next.text == "(" && next.offset == at.offset+len(at.text)
		switch {
		case text == "(":
			depth++
		case text == ")":
			depth--
		case text == "set":
			assigns = depth
		case depth == assigns && (text == "from" || text == "where" || text == "returning"):
			assigns = -1
		}
		if text[0] == '\'' && dynamic.MatchString(at.text) {
			for _, inside := range lint(at.text[1:len(at.text)-1], batched) {
				inside.offset += at.offset + 1
				found = append(found, inside)
			}
		}
		assigned := text == "=" && (depth == assigns && (before == "set" || before == "local" || before == ",") ||
			strings.EqualFold(next.text, "null"))
		switch {
		case last == ".":
		case strings.HasPrefix(text, "pg_") && text != "pg_catalog" && text != "pg_temp", last == "::" &&
			isWord.MatchString(text) &&
			next.text != "." && !grammarTypes[text]:
			at.fix = "write pg_catalog." + at.text
		case called && isWord.MatchString(text) && !beforeParenthesis[text] && !grammarTypes[text] &&
			!special(text, all[i+1:]):
			at.fix = "write pg_catalog." + at.text
		case batched && !assigned:
			at.fix = operators(text, last, next.text)
		}
		if at.fix != "" {
			found = append(found, at)
		}
		before, last = last, text
	}
	return found
}

// special reports whether a call has a syntax of its own: unnest of several arrays, which
// works only without a schema, and substring(a FROM b).
func special(name string, rest []finding) bool {
	depth, several := 0, false
	for _, at := range rest {
		switch at.text {
		case "(", "[":
			depth++
		case ")", "]":
			depth--
		case ",":
			several = several || depth == 1
		}
		if depth == 0 {
			break
		}
	}
	return name == "unnest" && several || name == "substring" && !several
}

// operators returns the qualified replacement of an operator, or of a syntax that uses
// unqualified operators.
func operators(text, last, next string) string {
	switch {
	case text == "in" && next == "(":
		return "write OPERATOR(pg_catalog.=) ANY (…), and for NOT IN put NOT before the whole condition"
	case text == "distinct" && (last == "is" || last == "not") && strings.EqualFold(next, "from"):
		return "write (a OPERATOR(pg_catalog.=) b) IS NOT TRUE"
	case text == "nullif":
		return "write CASE WHEN a OPERATOR(pg_catalog.<>) b THEN a END"
	case text == "case" && !strings.EqualFold(next, "when"):
		return "write CASE WHEN a OPERATOR(pg_catalog.=) b THEN …"
	case text == "using" && next == "(", text == "natural" && strings.EqualFold(next, "join"):
		return "write ON a OPERATOR(pg_catalog.=) b"
	case text == "like", text == "ilike", text == "similar", text == "between" && last != "rows":
		return "write the operator as OPERATOR(pg_catalog.…)"
	case !isOperator.MatchString(text), text == "=>", text == ":=", text == "*" && afterThese[last],
		(text == "-" || text == "+") && isNumber.MatchString(next) && (last == "" || afterThese[last]):
		return ""
	}
	return "write OPERATOR(pg_catalog." + text + ") and put the operands in parentheses: its precedence is that of ||"
}

// private matches code that works on databases of its own, and package dbsqlc, which is
// generated from sql/queries.
var private = regexp.MustCompile(`internal/(dbtest|pgtest|exampleapp|devpg|dbsqlc|s3test|cli/(bench|clitest|demo))/|/reference/|/testdata/`)

// batched matches the files whose statements run in a batch with the application's path.
// It does not match statements that run with the pinned path (batch.Limits.Own).
var (
	batched = regexp.MustCompile(`internal/((batch|loosefk|ghostuser|groupdelete|drain|groupschedule|placeholder)/` +
		`|extdiff/((switch|claim|layout|restore|marker|schedule)\.` +
		`|queries/(bound|external|layout|lock|outdated|owned|restore_texts|size|stream|survey|switch)))` +
		`|queries/external_diffs/claims`)
	notBatched = regexp.MustCompile(
		`/(loosefk/plan/[\w/]+|plan_resolve|resolve\w*|catalog\w*|privileges|fingerprint|bounds|tombstones|waiting|bind|backlog\w*|examine\w*|path)\.(go|sql)$` +
			`|/(loosefk/queries/(load|load_rechecks|recheck|recheckable|record_failure|mark_unkept|forget|may_keep|open)` +
			`|loosefk/(cleanup|adopt)/queries/\w+|drain/dml/queries/\w+|batch/blocker` +
			`|ghostuser/queries/load|groupdelete/queries/(forget|refuse|record|blame)` +
			`|groupschedule/queries/(next_due|opening|page|defer|retry|forget|forget_gone)` +
			`|placeholder/(list|queries/(next_due|list|load|reasons|retry_state|save_rules|pending)))\.(go|sql)$`)
)

// escapes replaces escape sequences of a Go literal by texts of the same length, so that
// offsets do not change.
var escapes = strings.NewReplacer(`\n`, "  ", `\t`, "  ", `\"`, `" `)

// lintFile returns lines of the form FILE:LINE with the finding and its replacement.
func lintFile(path string, data []byte) (found []string, err error) {
	inBatch := batched.MatchString(path) && !notBatched.MatchString(path)
	report := func(at int, text string) {
		for _, f := range append(lint(text, inBatch), ambiguous(text)...) {
			found = append(found, fmt.Sprintf("%s:%d: %s: %s", path, 1+strings.Count(string(data[:at+f.offset]), "\n"),
				f.text, f.fix))
		}
	}
	if filepath.Ext(path) == ".sql" {
		report(0, string(data))
		if at := bytes.IndexFunc(data, func(r rune) bool { return r > unicode.MaxASCII }); at >= 0 {
			found = append(found, fmt.Sprintf("%s:%d: a character that not every database can store: write ASCII", path,
				1+bytes.Count(data[:at], []byte("\n"))))
		}
		for _, at := range unpinned(string(data)) {
			found = append(found, fmt.Sprintf("%s:%d: a function without SET search_path = pg_catalog, pg_temp", path,
				at))
		}
		return found, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, data, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING && isSQL.MatchString(literal.Value) {
			report(files.Position(literal.Pos()).Offset+1, escapes.Replace(literal.Value[1:len(literal.Value)-1]))
		}
		return true
	})
	return found, nil
}

// ambiguous returns string constants whose value depends on standard_conforming_strings.
func ambiguous(sql string) (found []finding) {
	last := ""
	for _, at := range tokens(sql) {
		if strings.HasPrefix(at.text, "'") && strings.Contains(at.text, `\`) && last != "E" {
			at.fix = `write E'…' with \\ for each \`
			found = append(found, at)
		}
		last = at.text
	}
	return found
}

var function = regexp.MustCompile(`(?s)\nCREATE (?:OR REPLACE )?FUNCTION .*?\nAS \$`)

// unpinned returns the lines of functions that run with their caller's search_path.
func unpinned(sql string) (lines []int) {
	for _, at := range function.FindAllStringIndex("\n"+sql, -1) {
		if !strings.Contains(sql[at[0]:at[1]-1], "\nSET search_path = pg_catalog, pg_temp\n") {
			lines = append(lines, 1+strings.Count(sql[:at[0]], "\n"))
		}
	}
	return lines
}

// Statements qualify functions, types and operators, so that they never use functions,
// types or operators of another role.
func TestStatementsQualifyNames(t *testing.T) {
	t.Parallel()
	files := 0
	for _, root := range []string{"../internal", "../river_jobs", "../triggers", "../sql"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || private.MatchString(path) || ext != ".sql" && ext != ".go" ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			found, err := lintFile(path, data)
			for _, line := range found {
				t.Error(line)
			}
			return err
		}))
	}
	require.Greater(t, files, 300)
}

func TestLintFindsUnqualifiedNames(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT now()": "now", "SELECT 1 WHERE format('%s', x) IS NULL": "format", "SELECT x::text": "text",
		`SELECT x::"char"`:                    `"char"`,
		"SELECT x::pg_catalog.text::regclass": "regclass", "SELECT FROM pg_class": "pg_class",
		"SELECT unnest(x)":       "unnest",
		"SELECT substring(a, 1)": "substring", "EXECUTE 'SELECT now()'": "now", "SELECT $1::text[]": "text",
		"SELECT COUNT(*) FROM x":            "COUNT",
		"DO $$ BEGIN PERFORM now(); END $$": "now",
	} {
		found := lint(sql, false)
		require.Len(t, found, 1, sql)
		require.Equal(t, want, found[0].text, sql)
		require.Equal(t, "write pg_catalog."+want, found[0].fix, sql)
	}
	for sql, want := range map[string]string{
		"SELECT a = b": "=", "SELECT a <> ALL ($1)": "<>", "SELECT a IN (1, 2)": "IN",
		"SELECT a NOT IN (SELECT b FROM c)": "IN",
		"SELECT a IS DISTINCT FROM b":       "DISTINCT", "SELECT a IS NOT DISTINCT FROM b": "DISTINCT",
		"SELECT nullif(a, b)":             "nullif",
		"SELECT CASE a WHEN 1 THEN 2 END": "CASE", "SELECT FROM a JOIN b USING (c)": "USING",
		"SELECT FROM a NATURAL JOIN b": "NATURAL",
		"SELECT a LIKE 'b'":            "LIKE", "SELECT a BETWEEN 1 AND 2": "BETWEEN", "UPDATE a SET b = c + 1": "+",
		"UPDATE a SET b = 1 WHERE c = 2": "=",
		"SELECT a - 1":                   "-", "SELECT a || b": "||", "SELECT (a, b) < (c, d)": "<",
		"UPDATE a SET b = (SELECT c FROM d WHERE e = 1), f = 2": "=",
	} {
		found := lint(sql, true)
		require.Len(t, found, 1, sql)
		require.Equal(t, want, found[0].text, sql)
		require.Empty(t, lint(sql, false), sql)
	}
	for _, sql := range []string{
		"SELECT pg_catalog.now(), a.*, coalesce(b, -1), x::pg_catalog.text, y::bigint[], ARRAY[-1] -- now()",
		"SELECT FROM unnest($1::bigint[], $2::bigint[]) AS a (b, c)",
		"SELECT substring(a FROM 1 FOR 2), extract(epoch FROM pg_catalog.now())",
		"UPDATE a SET b = 1, c = d OPERATOR(pg_catalog.+) 1 WHERE e OPERATOR(pg_catalog.=) 'now()'",
		"DELETE FROM a USING b",
		"SELECT pg_catalog.sum(a) OVER (ORDER BY b ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
		`SELECT "sexton".enqueue($1)`,
		"SELECT pg_catalog.make_interval(secs => 1)",
		"SELECT CASE WHEN a OPERATOR(pg_catalog.<>) '' THEN a END /* a = b */",
	} {
		require.Empty(t, lint(sql, true), sql)
	}

	require.Len(t, ambiguous(`SELECT '\d', E'\\d', 'd'`), 1)
	found, err := lintFile("../internal/loosefk/planted.go",
		[]byte("package x\n\nconst a = `\nSELECT 1\nWHERE b = 1`\n\nvar c = now(d)\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"../internal/loosefk/planted.go:5: =: " + operators("=", "", "")}, found)
	found, err = lintFile("planted.sql",
		[]byte("CREATE FUNCTION s.f()\nRETURNS void\nLANGUAGE sql\nAS $$ SELECT $$;\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"planted.sql:1: a function without SET search_path = pg_catalog, pg_temp"}, found)
}

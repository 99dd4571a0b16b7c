package triggers

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed functions/track_bigint.sql
var trackBigintSQL string

//go:embed functions/track_text.sql
var trackTextSQL string

//go:embed functions/track_composite.sql
var trackCompositeSQL string

//go:embed functions/track_truncate.sql
var trackTruncateSQL string

//go:embed functions/otherwise.sql
var otherwiseSQL string

// keyMovedSQL is true where a trigger's attribute numbers are about columns of the table that it stands on. It reads a file
// of the server, so it comes last.
const keyMovedSQL = `(
        NOT EXISTS (
            SELECT
            FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid OPERATOR(pg_catalog.=) TG_RELID AND a.attnum OPERATOR(pg_catalog.=) ANY (key_numbers) AND a.attisdropped)
        AND TG_ARGV[3] OPERATOR(pg_catalog.=) pg_catalog.concat(
            (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c), '/', TG_RELID))`

//go:embed tables/sexton_track.sql
var trackTriggerSQL string

//go:embed tables/sexton_truncate.sql
var truncateTriggerSQL string

const truncateFunction = "track_truncate"

// keyClass says which column of the tombstones takes a parent's key.
type keyClass string

const (
	bigintKey keyClass = "bigint"
	textKey   keyClass = "text"
	// compositeKey is text as well: that of an array of the columns' text forms.
	compositeKey keyClass = "composite"
)

// function is a trigger function as it should be. The catalogue keeps body and settings apart from the
// statement, so that they can be compared with what is installed.
type function struct {
	name     string
	comment  string
	create   string
	body     string
	settings []string
}

// trackFunction returns the function for key columns. Its name is derived from the columns, because any
// column name must work and the name of a function has 63 bytes as well.
func (c Config) trackFunction(keyColumns []string, class keyClass) function {
	template, noun := trackTextSQL, "column"
	switch class {
	case bigintKey:
		template = trackBigintSQL
	case compositeKey:
		template, noun = trackCompositeSQL, "columns"
	case textKey:
	}
	names := make([]string, len(keyColumns))
	for i, column := range keyColumns {
		names[i] = strconv.Quote(column)
	}
	comment := fmt.Sprintf("Sexton: records deletions by key %s %s (%s)", noun, strings.Join(names, ", "), class)
	return c.render(trackName(keyColumns, class), template, comment, keyColumns)
}

func trackName(keyColumns []string, class keyClass) string {
	sum := sha256.Sum256([]byte(string(class) + "\x00" + strings.Join(keyColumns, "\x00")))
	return "track_" + hex.EncodeToString(sum[:6])
}

func (c Config) truncateFunction() function {
	return c.render(truncateFunction, trackTruncateSQL, "Sexton: decides about TRUNCATE of tracked tables", nil)
}

func (c Config) render(name, template, comment string, keyColumns []string) function {
	// The body is a dollar-quoted string into which names go that may hold anything, its own end mark
	// included; so the mark is lengthened until it occurs in none of them.
	tag := "$sexton$"
	for strings.Contains(c.JobsSchema+" "+c.TrackedSchema+" "+strings.Join(keyColumns, " "), tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	last, quoted, gone, texts := "", "", make([]string, len(keyColumns)), make([]string, len(keyColumns))
	for i, column := range keyColumns {
		last, quoted = column, quoteIdent(column)
		gone[i], texts[i] = "gone."+quoted, "gone."+quoted+"::pg_catalog.text"
	}
	_, otherwise, _ := strings.Cut(otherwiseSQL, "EXECUTE ")
	otherwise = strings.ReplaceAll("EXECUTE "+strings.TrimSpace(otherwise), `'tracked_schema'`, quoteLiteral(c.TrackedSchema))
	create := strings.NewReplacer(
		`$sexton$`, tag,
		`"sexton"`, quoteIdent(c.JobsSchema),
		`"public"`, quoteIdent(c.TrackedSchema),
		`"track_function"`, quoteIdent(name),
		`-- key_otherwise`, otherwise,
		`"key_moved"`, keyMovedSQL,
		`'key_names'`, quoteLiteral(keyArgument(keyColumns)),
		`'key_name'`, quoteLiteral(last),
		`"key_columns"`, strings.Join(gone, ", "),
		`"key_texts"`, strings.Join(texts, ", "),
		`"key_column"`, quoted,
	).Replace(template)

	header, body, _ := strings.Cut(create, "AS "+tag)
	body, _, _ = strings.Cut(body, tag)
	return function{name: name, comment: comment, create: create, body: body, settings: settings(header)}
}

// settings lists the SET clauses of a function as pg_proc.proconfig shows them.
func settings(header string) []string {
	var out []string
	for _, clause := range regexp.MustCompile(`(?m)^SET (\S+) = (.+)$`).FindAllStringSubmatch(header, -1) {
		out = append(out, clause[1]+"="+strings.Trim(clause[2], "'"))
	}
	return out
}

// createTrigger returns the statement that creates or replaces one trigger.
func (c Config) createTrigger(t target) string {
	template := trackTriggerSQL
	switch t.Trigger {
	case WakeTrigger, WakeUpdateTrigger:
		return c.createWake(t)
	case TruncateTrigger:
		template = truncateTriggerSQL
	}
	arguments := make([]string, len(t.arguments))
	for i, argument := range t.arguments {
		arguments[i] = quoteLiteral(argument)
	}
	return strings.NewReplacer(
		`"parent_schema"."parent_table"`, pgx.Identifier{t.Schema, t.Table}.Sanitize(),
		`"sexton"."track_function"`, pgx.Identifier{c.JobsSchema, t.function()}.Sanitize(),
		`'arguments'`, strings.Join(arguments, ", "),
	).Replace(template)
}

func quoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

// quoteLiteral quotes for sessions with standard_conforming_strings on, as begin sets it.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

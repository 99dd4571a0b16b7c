package triggers

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed functions/track_bigint.sql
var trackBigintSQL string

//go:embed functions/track_text.sql
var trackTextSQL string

//go:embed functions/track_truncate.sql
var trackTruncateSQL string

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

// trackFunction returns the function for a key column. Its name is derived from the column, because any
// column name must work and the name of a function has 63 bytes as well.
func (c Config) trackFunction(keyColumn string, class keyClass) function {
	template := trackTextSQL
	if class == bigintKey {
		template = trackBigintSQL
	}
	comment := fmt.Sprintf("Sexton: records deletions by key column %q (%s)", keyColumn, class)
	return c.render(trackName(keyColumn, class), template, comment, keyColumn)
}

func trackName(keyColumn string, class keyClass) string {
	sum := sha256.Sum256([]byte(string(class) + "\x00" + keyColumn))
	return "track_" + hex.EncodeToString(sum[:6])
}

func (c Config) truncateFunction() function {
	return c.render(truncateFunction, trackTruncateSQL, "Sexton: decides about TRUNCATE of tracked tables", "")
}

func (c Config) render(name, template, comment, keyColumn string) function {
	// The body is a dollar-quoted string into which names go that may hold anything, its own end mark
	// included; so the mark is lengthened until it occurs in none of them.
	tag := "$sexton$"
	for strings.Contains(c.TrackedSchema+keyColumn, tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	create := strings.NewReplacer(
		`$sexton$`, tag,
		`"sexton"`, quoteIdent(c.JobsSchema),
		`"public"`, quoteIdent(c.TrackedSchema),
		`'tracked_schema'`, quoteLiteral(c.TrackedSchema),
		`"track_function"`, quoteIdent(name),
		`"key_column"`, quoteIdent(keyColumn),
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
	case WakeTrigger:
		return c.createWake(t)
	case TruncateTrigger:
		template = truncateTriggerSQL
	}
	return strings.NewReplacer(
		`"parent_schema"."parent_table"`, pgx.Identifier{t.Schema, t.Table}.Sanitize(),
		`"sexton"."track_function"`, pgx.Identifier{c.JobsSchema, t.function()}.Sanitize(),
		`'recorded_name'`, quoteLiteral(t.parent.recorded),
		`'key_column'`, quoteLiteral(t.parent.KeyColumn),
		`'truncate_policy'`, quoteLiteral(string(c.Truncate)),
		`'key_class'`, quoteLiteral(string(t.parent.class)),
	).Replace(template)
}

func quoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

// quoteLiteral quotes for sessions with standard_conforming_strings on, as begin sets it.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

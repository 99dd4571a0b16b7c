package triggers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// part is a piece of the functions. as_installed is the way of a table on which nothing
// has changed. key_changed is true where the key's column is called otherwise than when
// the function was written, or has another type; keys_changed where one of several
// columns is called otherwise. key_moved is true where a trigger's attribute numbers are
// about columns of the table that it stands on. It reads a file of the server, so it
// comes last.
func part(name string) string { return strings.TrimSpace(sqlText("parts/" + name)) }

const truncateFunction = "track_truncate"

// keyClass says which column of the tombstones takes a parent's key.
type keyClass string

const (
	bigintKey keyClass = "bigint"
	textKey   keyClass = "text"
	// compositeKey is text as well: that of an array of the columns' text forms.
	compositeKey keyClass = "composite"
)

// function is a trigger function as it should be. The catalogue keeps body and settings
// apart from the statement, so that they can be compared with what is installed.
type function struct {
	name     string
	comment  string
	create   string
	body     string
	settings []string
}

// trackFunction returns the function for a parent and its partitions.
func (c Config) trackFunction(p *resolved) function {
	keyColumns, class := p.KeyColumns, p.class
	noun, settings, changed, slot := "column", pgcatalog.TextClauses, part("key_changed"), "primary_key_text"
	n := len(keyColumns)
	names, gone, texts := make([]string, n), make([]string, n), make([]string, n)
	for i, column := range keyColumns {
		names[i], gone[i] = strconv.Quote(column), "gone."+quoteIdent(column)
		texts[i] = gone[i] + "::pg_catalog.text"
	}
	value, present := texts[0], gone[0]+" IS NOT NULL"
	// A cast by way of text can be planned for any type that the key may have by then.
	typed, ofType := value, fmt.Sprintf("pg_catalog.pg_typeof(%s) = '%d'::pg_catalog.regtype", gone[0], p.keyType)
	switch class {
	case bigintKey:
		settings, slot, value, typed = "", "primary_key_value", gone[0], texts[0]+"::bigint"
		ofType = fmt.Sprintf("pg_catalog.pg_typeof(%s)::pg_catalog.oid = ANY ('{20,21,23,%d}'::pg_catalog.oid[])",
			gone[0], p.keyType)
	case compositeKey:
		noun, changed = "columns", part("keys_changed")
		value = "ARRAY[" + strings.Join(texts, ", ") + "]::pg_catalog.text"
		present = "pg_catalog.num_nulls(" + strings.Join(gone, ", ") + ") = 0"
		typed, ofType = value, "true"
	case textKey:
	}
	template := strings.NewReplacer(pgcatalog.TextClausesHere, settings, `"key_changed"`,
		changed).Replace(sqlText("functions/track"))
	comment := fmt.Sprintf("Sexton: records deletions by key %s %s (%s)", noun, strings.Join(names, ", "), class)
	installed := part("as_installed")
	if p.Undo != KeepsNone {
		comment += ", and keeps the rows"
		template, installed = c.keeping(template, p.Undo), "" // That takes far longer than a look at the catalogue.
	}
	template = strings.NewReplacer(`-- as_installed`, installed).Replace(template)
	return c.render(p.function(), strings.ReplaceAll(template, `"key_slot"`, slot), comment,
		append(keyColumns, p.recorded),
		`'key_names'`, pgcatalog.Literal(keyArgument(keyColumns)), `'key_name'`, pgcatalog.Literal(keyColumns[0]),
		`"key_value"`, value, `"key_present"`, present,
		`"typed_value"`, typed, `"key_typed"`, ofType,
		`'table_oid'`, fmt.Sprintf("'%d'", p.oid), `'recorded_name'`, pgcatalog.Literal(p.recorded), `'key_numbers'`,
		pgcatalog.Literal(p.keyNumbers))
}

// keeping has the function keep the deleted rows, and its tombstones name the set that
// they are in.
func (c Config) keeping(template string, keeps Keeps) string {
	return strings.NewReplacer(
		"    BEGIN\n", "        "+part("undo_declare")+"\n    BEGIN\n    "+c.keep("undo_deleted", keeps == KeepsAll,
			"NULL")+"\n\n",
		"parent_oid, tracked_as, ", "parent_oid, tracked_as, origin, ", "installed, \"", "installed, origin, \"",
		"-- key_otherwise", "-- key_otherwise_kept",
	).Replace(template)
}

// keep is the block that keeps rows by the statements of a part. With roots it begins
// deletions; via marks rows that went along with others.
func (c Config) keep(statements string, roots bool, via string) string {
	exclude := make([]string, len(c.Undo.Exclude))
	for i, column := range c.Undo.Exclude {
		exclude[i] = pgcatalog.Literal(column)
	}
	whole := "(SELECT pg_catalog.count(*) FROM sexton_deleted) <= " + part("undo_known")
	if statements == "undo_changed" {
		whole = "false"
	}
	keep := strings.NewReplacer(`-- undo_statements`, part(statements), `"undo_whole"`,
		whole).Replace(part("undo_keep"))
	return strings.NewReplacer(`'undo_exclude'`, "ARRAY["+strings.Join(exclude, ", ")+"]::pg_catalog.text[]",
		`'undo_max_row'`, "'"+strconv.Itoa(c.Undo.MaxRow)+"'", `"undo_roots"`, strconv.FormatBool(roots),
		`"undo_via"`, via+"::pg_catalog.text[]", `"undo_known"`, part("undo_known")).Replace(keep)
}

// keepFunction returns the function of a trigger that keeps what native foreign keys take
// along.
func (c Config) keepFunction(trigger string) function {
	statements, comment := "undo_deleted", "Sexton: keeps rows that foreign keys take along"
	if trigger == KeepUpdateTrigger {
		statements, comment = "undo_changed", "Sexton: keeps values that foreign keys set to NULL or a default"
	}
	template := strings.NewReplacer("-- undo_declare", part("undo_declare"), "-- undo_keep",
		c.keep(statements, true, "'{}'")).
		Replace(sqlText("functions/keep"))
	return c.render(keepFunction(trigger), template, comment, nil)
}

// function is the name of the function. It says the key by a digest, because any column
// name must work and the name of a function has 63 bytes as well.
func (r *resolved) function() string {
	return fmt.Sprintf("%s_%d", trackName(r.KeyColumns, r.class, r.Undo), r.oid)
}

func trackName(keyColumns []string, class keyClass, keeps Keeps) string {
	kept := ""
	if keeps != KeepsNone {
		kept = "\x00" + string(keeps)
	}
	sum := sha256.Sum256([]byte(string(class) + "\x00" + strings.Join(keyColumns, "\x00") + kept))
	return "track_" + hex.EncodeToString(sum[:6])
}

func (c Config) truncateFunction() function {
	return c.render(truncateFunction, sqlText("functions/track_truncate"),
		"Sexton: decides about TRUNCATE of tracked tables", nil)
}

func (c Config) render(name, template, comment string, names []string, more ...string) function {
	// The body is a dollar-quoted string into which names go that may hold anything, its
	// own end mark included; so the mark is lengthened until it occurs in none of them.
	tag := "$sexton$"
	for strings.Contains(strings.Join(slices.Concat(names, c.Undo.Exclude, []string{c.TrackedSchema}), " "), tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	_, otherwise, _ := strings.Cut(sqlText("functions/otherwise"), "EXECUTE ")
	otherwise = strings.ReplaceAll("EXECUTE "+strings.TrimSpace(otherwise), `'tracked_schema'`,
		pgcatalog.Literal(c.TrackedSchema))
	kept := strings.NewReplacer("tracked_as, %s)", "tracked_as, origin, %s)", "SELECT $1, $2, $3, %s",
		"SELECT $1, $2, $3, $4, %s",
		"USING present, root, installed", "USING present, root, installed, origin").Replace(otherwise)
	create := strings.NewReplacer(append(more,
		pgcatalog.TextClausesHere, pgcatalog.TextClauses,
		`-- key_otherwise_kept`, kept,
		`$sexton$`, tag,
		`"public"`, quoteIdent(c.TrackedSchema),
		`"track_function"`, quoteIdent(name),
		`-- key_otherwise`, otherwise,
		`"key_moved"`, part("key_moved"),
	)...).Replace(template)

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
	template := sqlText("tables/sexton_track")
	switch t.Trigger {
	case WakeTrigger, WakeUpdateTrigger:
		template = t.wakes.template(t.Trigger)
	case TruncateTrigger:
		template = sqlText("tables/sexton_truncate")
	case KeepTrigger:
		template = strings.NewReplacer(`"trigger_name"`, KeepTrigger, `"event"`, "DELETE", `"transition_tables"`,
			"OLD TABLE AS sexton_deleted").
			Replace(sqlText("tables/sexton_keep"))
	case KeepUpdateTrigger:
		template = strings.NewReplacer(`"trigger_name"`, KeepUpdateTrigger, `"event"`, "UPDATE",
			`"transition_tables"`,
			"OLD TABLE AS sexton_deleted NEW TABLE AS sexton_changed").Replace(sqlText("tables/sexton_keep"))
	}
	arguments := make([]string, len(t.arguments))
	for i, argument := range t.arguments {
		arguments[i] = pgcatalog.Literal(argument)
	}
	return strings.NewReplacer(
		`"parent_schema"."parent_table"`, pgx.Identifier{t.Schema, t.Table}.Sanitize(),
		`"track_function"`, quoteIdent(t.function()),
		`'arguments'`, strings.Join(arguments, ", "),
	).Replace(template)
}

func quoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

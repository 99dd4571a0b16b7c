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

// part returns a part of the trigger functions. as_installed is the fast path for a table
// that has not changed since the installation. key_changed is the condition that the
// key's column has been renamed or has another type, and keys_changed that one of several
// columns has been renamed. key_moved is the condition that the trigger's attribute
// numbers belong to its table. key_moved reads a file of the server, so it is evaluated
// last.
func part(name string) string { return strings.TrimSpace(sqlText("parts/" + name)) }

const truncateFunction = "track_truncate"

// keyClass determines the column of the tombstones for a parent's key.
type keyClass string

const (
	bigintKey keyClass = "bigint"
	textKey   keyClass = "text"
	// compositeKey is stored as text, too: the text form of the array of the columns'
	// text forms.
	compositeKey keyClass = "composite"
)

// function is an expected trigger function. body and settings are separate fields,
// because they are compared with the catalog, which stores them separately.
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
	names, deleted, texts := make([]string, n), make([]string, n), make([]string, n)
	for i, column := range keyColumns {
		names[i], deleted[i] = strconv.Quote(column), "deleted."+quoteIdent(column)
		texts[i] = deleted[i] + "::pg_catalog.text"
	}
	value, present := texts[0], deleted[0]+" IS NOT NULL"
	// The cast goes through text, so that Postgres can plan it for any type that the key
	// may get later.
	typed, ofType := value, fmt.Sprintf("pg_catalog.pg_typeof(%s) = '%d'::pg_catalog.regtype", deleted[0], p.keyType)
	switch class {
	case bigintKey:
		settings, slot, value, typed = "", "primary_key_value", deleted[0], texts[0]+"::bigint"
		ofType = fmt.Sprintf("pg_catalog.pg_typeof(%s)::pg_catalog.oid = ANY ('{20,21,23,%d}'::pg_catalog.oid[])",
			deleted[0], p.keyType)
	case compositeKey:
		noun, changed = "columns", part("keys_changed")
		value = "ARRAY[" + strings.Join(texts, ", ") + "]::pg_catalog.text"
		present = "pg_catalog.num_nulls(" + strings.Join(deleted, ", ") + ") = 0"
		typed, ofType = value, "true"
	case textKey:
	}
	template := strings.NewReplacer(pgcatalog.TextClausesHere, settings, `"key_changed"`,
		changed).Replace(sqlText("functions/track"))
	comment := fmt.Sprintf("Sexton: records deletions by key %s %s (%s)", noun, strings.Join(names, ", "), class)
	installed := part("as_installed")
	if p.Undo != KeepsNone {
		comment += ", and keeps the rows"
		template, installed = c.keeping(template, p.Undo), "" // Saving rows takes far longer than reading the catalog, so a fast path is of no use.
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

// keeping adds the statements that save the deleted rows to the template of a tracking
// function. Each tombstone gets the ID of the set of saved rows.
func (c Config) keeping(template string, keeps Keeps) string {
	return strings.NewReplacer(
		"    BEGIN\n", "        "+part("undo_declare")+"\n    BEGIN\n    "+c.keep("undo_deleted", keeps == KeepsAll,
			"NULL")+"\n\n",
		"parent_oid, tracked_as, ", "parent_oid, tracked_as, origin, ", "installed, \"", "installed, origin, \"",
		"-- key_otherwise", "-- key_otherwise_kept",
	).Replace(template)
}

// keep returns the PL/pgSQL block that saves rows. statements is the name of the part
// with the statements of the block. If roots is set, the block may begin a new deletion
// for undo. via is an SQL expression for the column via of the saved rows.
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

// keepFunction returns the function of a trigger that saves the rows that native foreign
// keys delete or change.
func (c Config) keepFunction(trigger string) function {
	statements, comment := "undo_deleted", "Sexton: keeps rows that foreign keys delete"
	if trigger == KeepUpdateTrigger {
		statements, comment = "undo_changed", "Sexton: keeps values that foreign keys set to NULL or a default"
	}
	template := strings.NewReplacer("-- undo_declare", part("undo_declare"), "-- undo_keep",
		c.keep(statements, true, "'{}'")).
		Replace(sqlText("functions/keep"))
	return c.render(keepFunction(trigger), template, comment, nil)
}

// function returns the name of the parent's function. The name contains a digest of the
// key columns, because a function name is limited to 63 bytes, and so is each column
// name.
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
		"Sexton: refuses or ignores TRUNCATE of tracked tables", nil)
}

func (c Config) render(name, template, comment string, names []string, more ...string) function {
	// The body is a dollar-quoted string with names that may contain any text. So the tag
	// is lengthened until no name contains it.
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

// settings returns the SET clauses of a function in the form of pg_proc.proconfig.
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

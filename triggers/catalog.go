package triggers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// resolved is a parent with its data from the catalog.
type resolved struct {
	Parent
	oid      uint32
	recorded string
	class    keyClass
	// keyNumbers is the text form of the array of the columns' attribute numbers. keyType
	// is the type of the first column.
	keyNumbers string
	keyType    uint32
}

// target describes one trigger on one table: the expected and the installed trigger.
type target struct {
	relation
	// position is the index of the parent, wake-up or foreign key that the query was
	// given.
	position int
	// parent is the tracked parent. It is nil for a wake trigger, whose configuration is
	// in wakes.
	parent  *resolved
	wakes   Wake
	Trigger string

	relkind    string
	owned      bool
	owner      string
	mayTrigger bool

	present        bool
	enabled        string
	functionSchema string
	functionName   string
	// installedInteger is true if the installed trigger is for one integer column.
	installedInteger bool
	// arguments holds the expected arguments.
	arguments []string
	// runs, if set, overrides the function that the trigger must run.
	runs         string
	eventMatches bool
	argsMatch    bool
	// tracks is the name that the parent had when the installed trigger was created.
	tracks string
}

// slot identifies a trigger in a database.
type slot struct {
	table   uint32
	trigger string
}

func (t target) slot() slot { return slot{t.OID, t.Trigger} }

// function returns the name of the function that the trigger must run.
func (t target) function() string {
	switch {
	case t.runs != "":
		return t.runs
	case t.wakesWorkers():
		return wakeFunction
	case t.Trigger == TruncateTrigger:
		return truncateFunction
	case t.keepsRows():
		return keepFunction(t.Trigger)
	default:
		return t.parent.function()
	}
}

// otherClass reports whether the installed trigger records a key of one column in another
// form: as an integer instead of a text, or as a text instead of an integer.
func (t target) otherClass() bool {
	if t.Trigger != TrackTrigger || t.parent.class == compositeKey || t.functionName == "" ||
		t.functionName == t.function() {
		return false
	}
	return t.installedInteger != (t.parent.class == bigintKey)
}

// wakesWorkers reports whether the trigger is a wake trigger.
func (t target) wakesWorkers() bool {
	return t.Trigger == WakeTrigger || t.Trigger == WakeUpdateTrigger
}

// readTargets runs a query for expected triggers, and returns them with the installed
// triggers. what describes the query in errors.
func readTargets(ctx context.Context, tx pgx.Tx, what, query string, args ...any) ([]target, error) {
	rows, _ := tx.Query(ctx, sqlText("queries/"+query)+sqlText("queries/installed_triggers"), args...)
	targets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t target, err error) {
		err = row.Scan(&t.position, &t.OID, &t.Schema, &t.Table, &t.Display, &t.relkind, &t.owned, &t.owner,
			&t.mayTrigger,
			&t.Trigger, &t.present, &t.enabled, &t.functionSchema, &t.functionName, &t.installedInteger, &t.arguments,
			&t.eventMatches, &t.argsMatch)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return targets, nil
}

// prerequisites is the row of preflight.sql: the roles, privileges and objects that the
// installation depends on.
type prerequisites struct {
	// Role is the current role. Owner is the role that will own the functions.
	Role                            string
	MayCreate, Schema, Tombstones   bool
	Owner                           string
	MayInsert, Function, MayExecute bool
}

func (c Config) prerequisites(ctx context.Context, tx pgx.Tx) (f prerequisites, err error) {
	rows, _ := tx.Query(ctx, sqlText("queries/preflight"), pgcatalog.Schema, c.TrackedSchema)
	if f, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[prerequisites]); err != nil {
		return f, fmt.Errorf("read schemas: %w", err)
	}
	return f, nil
}

// check returns an error if a table that the triggers write to is missing. If installs is
// set, it also returns an error if a privilege is missing that the installation or the
// functions need.
func (c Config) check(f prerequisites, parents []Parent, installs bool) error {
	switch {
	case !f.Schema:
		return &NotMigratedError{Missing: `schema "sexton"`}
	case !f.Tombstones && c.records(parents):
		return &NotMigratedError{Missing: "table " + c.tombstones()}
	case !installs:
	case !f.MayCreate:
		return &PrivilegeError{
			Role: f.Role, Missing: `CREATE on schema "sexton"`,
			Grant: `GRANT USAGE, CREATE ON SCHEMA "sexton" TO ` + quoteIdent(f.Role),
		}
	case !f.MayInsert && c.records(parents):
		// The functions run as their owner. Without INSERT every DELETE on a parent would
		// fail.
		return &PrivilegeError{
			Role: f.Owner, Missing: "INSERT on table " + c.tombstones(),
			Grant: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT INSERT ON TABLE %s TO %[2]s",
				quoteIdent(c.TrackedSchema), quoteIdent(f.Owner), c.tombstones()),
		}
	case !f.Function && c.records(parents):
		return &NotMigratedError{Missing: `function "sexton".is_as_installed`}
	case !f.MayExecute && c.records(parents):
		return &PrivilegeError{
			Role: f.Owner, Missing: `EXECUTE on function "sexton".is_as_installed`,
			Grant: `GRANT EXECUTE ON FUNCTION "sexton".is_as_installed TO ` + quoteIdent(f.Owner),
		}
	}
	return nil
}

// records reports whether the database has tombstones, which only loose foreign keys use.
func (c Config) records(parents []Parent) bool {
	return len(parents) > 0 || slices.ContainsFunc(c.Wake, func(w Wake) bool { return w.Table == TombstoneTable })
}

// TombstoneTable is the table of tombstones in the tracked schema.
const TombstoneTable = "loose_foreign_keys_deleted_records"

func (c Config) tombstones() string {
	return pgx.Identifier{c.TrackedSchema, TombstoneTable}.Sanitize()
}

// resolve returns the parents that can be tracked, without duplicates, and one problem
// for each parent that cannot.
func resolve(ctx context.Context, tx pgx.Tx, parents []Parent) (found []*resolved, problems []error, err error) {
	unique := withoutDuplicates(parents)
	schemas, tables, columns := columnsOf(unique)
	rows, _ := tx.Query(ctx, sqlText("queries/parents"), schemas, tables, columns)
	keyRows, err := pgx.CollectRows(rows, pgx.RowToStructByPos[keyRow])
	if err != nil {
		return nil, nil, fmt.Errorf("read parents: %w", err)
	}
	keys := map[uint32]string{}
	for _, p := range unique {
		if len(p.KeyColumns) == 0 {
			problems = append(problems, fmt.Errorf("track table %s: no key column is given",
				pgx.Identifier{p.Schema, p.Table}.Sanitize()))
			continue
		}
		parent, problem := p.resolved(keyRows[:len(p.KeyColumns)])
		keyRows = keyRows[len(p.KeyColumns):]
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		if other, taken := keys[parent.oid]; taken {
			problems = append(problems,
				fmt.Errorf("track table %s: definitions name two different keys, %s and %s; a tombstone has only one key",
					parent.recorded, other, parent.keyLabel()))
			continue
		}
		keys[parent.oid] = parent.keyLabel()
		found = append(found, parent)
	}
	return found, problems, nil
}

// keyRow is a row of parents.sql: one key column and its table.
type keyRow struct {
	OID                 uint32
	Relkind             string
	Temporary           bool
	PartitionOf, Record string
	// Class is empty if the column does not exist.
	Class  keyClass
	Number int16
	Type   uint32
}

// resolved returns the parent with its data from the catalog, or the reason why it cannot
// be tracked.
func (p Parent) resolved(columns []keyRow) (*resolved, error) {
	table := columns[0]
	numbers := make([]string, len(columns))
	for i, column := range columns {
		numbers[i] = strconv.Itoa(int(column.Number))
	}
	r := &resolved{
		Parent: p, oid: table.OID, recorded: table.Record, class: table.Class,
		keyNumbers: "{" + strings.Join(numbers, ",") + "}", keyType: table.Type,
	}
	if len(columns) > 1 {
		r.class = compositeKey
	}
	missing := slices.IndexFunc(columns, func(c keyRow) bool { return c.Class == "" })
	return r, r.problem(table.Relkind, table.PartitionOf, table.Temporary, missing)
}

// withoutDuplicates returns the parents without duplicates.
func withoutDuplicates(parents []Parent) []Parent {
	var unique []Parent
	for _, p := range parents {
		if !slices.ContainsFunc(unique, func(other Parent) bool {
			return other.Schema == p.Schema && other.Table == p.Table && slices.Equal(other.KeyColumns, p.KeyColumns)
		}) {
			unique = append(unique, p)
		}
	}
	return unique
}

// columnsOf returns the schemas, tables and key columns of parents in three slices, with
// one element per key column.
func columnsOf(parents []Parent) (schemas, tables, columns []string) {
	schemas, tables, columns = []string{}, []string{}, []string{}
	for _, p := range parents {
		for _, column := range p.KeyColumns {
			schemas, tables, columns = append(schemas, p.Schema), append(tables, p.Table), append(columns, column)
		}
	}
	return schemas, tables, columns
}

// keyArgument returns the text form of an array of column names, for the argument of a
// trigger.
func keyArgument(columns []string) string {
	elements := make([]string, len(columns))
	for i, column := range columns {
		elements[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(column) + `"`
	}
	return "{" + strings.Join(elements, ",") + "}"
}

// keyLabel returns the key columns for messages.
func (p Parent) keyLabel() string {
	if len(p.KeyColumns) == 1 {
		return strconv.Quote(p.KeyColumns[0])
	}
	return fmt.Sprintf("%q", p.KeyColumns)
}

// problem returns the reason why triggers cannot be installed on a parent, or nil.
// missing is the index of a key column that does not exist, or -1.
func (r *resolved) problem(relkind, partitionOf string, temporary bool, missing int) error {
	name := pgx.Identifier{r.Schema, r.Table}.Sanitize()
	switch {
	case r.oid == 0:
		return fmt.Errorf("track table %s: it does not exist", name)
	case relkind == "v" || relkind == "m":
		return fmt.Errorf("track table %s: it is a view; use a table", name)
	case relkind == "f":
		return fmt.Errorf("track table %s: it is a foreign table; track it in the database that owns it", name)
	case partitionOf != "":
		return fmt.Errorf("track table %s: it is a partition of %s; name that table instead", name, partitionOf)
	case temporary:
		return fmt.Errorf("track table %s: it is a temporary table", name)
	case missing >= 0:
		return fmt.Errorf("track table %s: it has no column %q", name, r.KeyColumns[missing])
	}
	return nil
}

// targets returns the two triggers of every tracked table, including partitions.
func (c Config) targets(ctx context.Context, tx pgx.Tx, parents []*resolved) ([]target, error) {
	roots, recorded, columns := []uint32{}, []string{}, []string{}
	for _, p := range parents {
		roots, recorded = append(roots, p.oid), append(recorded, p.recorded)
		columns = append(columns, keyArgument(p.KeyColumns))
	}
	targets, err := readTargets(ctx, tx, "triggers", "tables", roots, recorded, columns, string(c.Truncate))
	for i := range targets {
		targets[i].parent = parents[targets[i].position]
	}
	return targets, err
}

func (t target) foreignTable() error {
	return fmt.Errorf("track table %s: its partition %s is a foreign table, which cannot have triggers with transition tables",
		t.parent.recorded, t.Display)
}

// wantedFunctions returns the functions that the triggers need, without duplicates.
func (c Config) wantedFunctions(parents []*resolved, kept []target) []function {
	var wanted []function
	if len(parents) > 0 {
		wanted = append(wanted, c.truncateFunction())
	}
	for _, p := range parents {
		wanted = append(wanted, c.trackFunction(p))
	}
	for _, t := range kept {
		if f := c.keepFunction(t.Trigger); !slices.ContainsFunc(wanted,
			func(other function) bool { return other.name == f.name }) {
			wanted = append(wanted, f)
		}
	}
	if len(c.Wake) > 0 {
		wanted = append(wanted, c.render(wakeFunction, sqlText("functions/wake"),
			"Sexton: notifies idle workers of new work", nil))
	}
	return wanted
}

// functionRow is a row of functions.sql: an installed function.
type functionRow struct {
	Exists, Shape, Public, MayRecord bool
	Body, Owner                      string
	Settings                         []string
}

// compareFunctions returns one finding per function that is missing or differs.
func (c Config) compareFunctions(ctx context.Context, tx pgx.Tx, wanted []function) (findings []Finding, _ error) {
	names := make([]string, len(wanted))
	for i, f := range wanted {
		names[i] = f.name
	}
	rows, _ := tx.Query(ctx, sqlText("queries/functions"), pgcatalog.Schema, names, c.TrackedSchema)
	installed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[functionRow])
	if err != nil {
		return nil, fmt.Errorf("read functions: %w", err)
	}
	for i, found := range installed {
		detail := ""
		switch want := wanted[i]; {
		case !found.Exists:
			findings = append(findings, Finding{
				Trigger: want.name, Kind: Missing,
				Detail: "the function does not exist", Fix: fixInstall,
			})
		case found.Body != want.body:
			detail = "its body differs"
		case !slices.EqualFunc(found.Settings, want.settings, strings.EqualFold):
			detail = fmt.Sprintf("its settings are %q", found.Settings)
		case !found.Shape:
			detail = "it is not a SECURITY DEFINER trigger function in plpgsql"
		case found.Public:
			detail = "PUBLIC may execute it"
		case !found.MayRecord && want.name != wakeFunction:
			detail = fmt.Sprintf("its owner %s may not insert into %s or execute %s, so DELETE on the parents fails",
				found.Owner, c.tombstones(), `"sexton".is_as_installed`)
		}
		if detail != "" {
			findings = append(findings, Finding{
				Trigger: names[i], Kind: Altered,
				Detail: "the function differs: " + detail, Fix: fixInstall,
			})
		}
	}
	return findings, nil
}

// registered returns the sorted names of the installed trigger functions.
func (c Config) registered(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, _ := tx.Query(ctx, sqlText("queries/registered"), pgcatalog.Schema)
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read trigger functions: %w", err)
	}
	return functions, nil
}

// installed returns every trigger of the database that runs one of the functions.
func (c Config) installed(ctx context.Context, tx pgx.Tx, functions []string) ([]target, error) {
	rows, _ := tx.Query(ctx, sqlText("queries/installed"), pgcatalog.Schema, functions)
	triggers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (target, error) {
		var t target
		err := row.Scan(&t.OID, &t.Schema, &t.Table, &t.Display, &t.Trigger, &t.functionName, &t.tracks)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read installed triggers: %w", err)
	}
	return triggers, nil
}

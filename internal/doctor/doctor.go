package doctor

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	// Severity is error for what keeps work from being done or leaves it unrecorded,
	// warning for what makes it slow or late, info for what may well be meant so.
	Severity problem.Severity `json:"severity"`
	// Check is the name of the check that found it, Database the configured name; empty
	// where a finding concerns no single database. Report fills in both.
	Check    string `json:"check"`
	Database string `json:"database"`
	// Object is the subject of the finding: a table, a role, a setting, a key of a file.
	Object  string `json:"object"`
	Message string `json:"message"`
	// Fix says what to do, as a statement or command where there is one.
	Fix string `json:"fix"`
}

// One is a single finding.
func One(severity problem.Severity, object, message, fix string) []Finding {
	return []Finding{{Severity: severity, Object: object, Message: message, Fix: fix}}
}

// Result is how a check ended.
type Result string

// The results.
const (
	OK    Result = "ok"
	Found Result = "found"
	// Failed is a check that could not be made; the reason is a finding of its own.
	Failed Result = "failed"
	// Skipped is a check that another one's finding leaves without a subject.
	Skipped Result = "skipped"
)

// Check is one check of one database.
type Check struct {
	Check    string `json:"check"`
	Database string `json:"database"`
	Result   Result `json:"result"`
}

// Report collects checks and findings in the order in which they were made.
type Report struct {
	// Roles are the ones whose rights were checked, by database.
	Roles    map[string]Role `json:"roles"`
	Findings []Finding       `json:"findings"`
	Checks   []Check         `json:"checks"`
}

// NewReport returns an empty report, whose lists are JSON arrays also where they stay
// empty.
func NewReport() *Report {
	return &Report{Roles: map[string]Role{}, Findings: []Finding{}, Checks: []Check{}}
}

// patience bounds one check: a catalogue that another session has locked must not hold up
// the others for ever.
const patience = 20 * time.Second

// Findings are the problems of files, each once: a cycle is found from several sides.
func Findings(problems problem.List) []Finding {
	found := make([]Finding, 0, len(problems))
	for _, p := range problems {
		place := p.Position.String()
		message, fix := p.Message, "correct it in "+p.Position.File
		if p.Key != "" && place != "" {
			message = place + ": " + message
		}
		if p.Severity == problem.Info {
			fix = "nothing, where it is meant so"
		}
		finding := Finding{
			Severity: p.Severity, Object: cmp.Or(p.Key, place), Message: message,
			Fix: cmp.Or(p.Fix, fix),
		}
		if !slices.Contains(found, finding) {
			found = append(found, finding)
		}
	}
	return found
}

// sqlStart matches a fix that is SQL.
var sqlStart = regexp.MustCompile(`^(ALTER|COMMIT|CREATE|DELETE|DROP|GRANT|REINDEX|REVOKE|SELECT|UPDATE) `)

// Run makes a check and reports whether it found nothing.
func (r *Report) Run(ctx context.Context, check, database string, look func(context.Context) ([]Finding, error)) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := look(ctx)
	result := OK
	switch {
	case err != nil:
		result = Failed
		found = append(found, One(problem.Error, check, fmt.Sprintf("the check failed: %v", err), fixFor(err))...)
	case len(found) > 0:
		result = Found
	}
	for _, f := range found {
		f.Check, f.Database = check, database
		if sqlStart.MatchString(f.Fix) {
			f.Fix = strings.TrimRight(f.Fix, "; ") + ";"
		}
		r.Findings = append(r.Findings, f)
	}
	r.Checks = append(r.Checks, Check{Check: check, Database: database, Result: result})
	return result == OK
}

// RunIf makes a check that has something to look at, and else notes that it was not made.
func (r *Report) RunIf(ctx context.Context, may bool, check, database string,
	look func(context.Context) ([]Finding, error),
) bool {
	if may {
		return r.Run(ctx, check, database, look)
	}
	r.Checks = append(r.Checks, Check{Check: check, Database: database, Result: Skipped})
	return false
}

// Count returns how many findings have the severity.
func (r *Report) Count(severity problem.Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// Sick reports whether something needs attention. Information alone does not: a preflight
// must be able to pass before the first worker runs.
func (r *Report) Sick() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != problem.Info })
}

// fixFor names the way out of a check that failed.
func fixFor(err error) string {
	switch {
	case pgcatalog.SQLState(err) == "42501":
		return "run the statements that `sexton grants` prints"
	case errors.Is(err, context.DeadlineExceeded):
		return "look what the server is busy with or who holds locks, and run `sexton doctor` again"
	default:
		return "put right what the server says, and run `sexton doctor` again"
	}
}

//go:embed queries
var sqlFiles embed.FS

// sqlText is one of these files. As parts of the program they are never missing.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// Target is a connected database and what is meant to happen in it.
type Target struct {
	Database database.Database
	// Installed reports that the database has Sexton's tables in the versions that this
	// program needs.
	Installed bool
	// Schema is what is to be installed, for the rights that the worker's role needs.
	Schema migrate.Database
	// Role is the one whose rights are checked.
	Role Role
	// Connections is how many connections one worker may open to this database.
	Connections int
	// Parents are the tracked tables; nil where the definitions leave that open.
	Parents []Parent

	// OldTransaction is the age from which a transaction is a finding; 0 means 1 h.
	OldTransaction time.Duration
	// Hearing is how long a notification may take; 0 means 2 s.
	Hearing time.Duration
}

// Role is a database role whose rights are checked.
type Role struct {
	Name string `json:"role"`
	// Other reports that the connections of the checks have another role.
	Other bool `json:"other"`
	// Source says why it is this one.
	Source string `json:"source"`
}

// The sources of a role.
const (
	Named  = "named by --role"
	Worker = "the newest running worker's"
	OfURL  = "the configured URL's, as no worker is running"
)

// Parent is a table whose deletions are recorded.
type Parent struct {
	Schema, Table string
	// Recorded is the table's name in tombstones.
	Recorded string
}

// check is one check of Examine.
type check struct {
	name string
	look func(context.Context) ([]Finding, error)
	// needs reports whether it has something to look at, by the names of the checks that
	// found nothing; nil stands for always.
	needs func(passed map[string]bool) bool
}

// checks are all of them, in their order.
func (t Target) checks() []check {
	reading := func(look func(context.Context, pgx.Tx) ([]Finding, error)) func(context.Context) ([]Finding, error) {
		return func(ctx context.Context) ([]Finding, error) { return t.read(ctx, look) }
	}
	// LISTEN is not allowed during recovery.
	hears := func(passed map[string]bool) bool { return passed["recovery"] }
	own := func(map[string]bool) bool { return !t.Role.Other }
	known := func(map[string]bool) bool { return t.Installed && t.Parents != nil }
	return []check{
		{"version", reading(version), nil},
		{"recovery", reading(recovery), nil},
		{"listen", t.listen, hears},
		{"statistics", reading(t.statistics), nil},
		{"transactions", reading(t.transactions), nil},
		{"prepared_transactions", reading(t.prepared), nil},
		{"settings", reading(settings), own},
		{"superusers", reading(t.superusers), nil},
		{"search_path", t.path, own},
		{"connections", reading(t.room), nil},
		{"privileges", reading(t.privileges), nil},
		{"partitions", reading(t.partitions), nil},
		{"tombstones", reading(t.tombstones), known},
	}
}

// Examine makes all checks of one database, and none of one that has no pool.
func Examine(ctx context.Context, report *Report, t Target) {
	passed := map[string]bool{}
	for _, c := range t.checks() {
		may := t.Database.Pool != nil && (c.needs == nil || c.needs(passed))
		passed[c.name] = report.RunIf(ctx, may, c.name, t.Database.Name, c.look)
	}
}

// read runs look in a transaction in which nothing can be changed and names are printed
// alike, whatever database and role have set.
func (t Target) read(ctx context.Context, look func(context.Context, pgx.Tx) ([]Finding,
	error),
) (found []Finding, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, t.Database.Pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pgcatalog.Pinned()); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		found, err = look(ctx, tx)
		return err
	})
	return found, err
}

// query asks and collects what word finds in each row. doing says what it is for, in an
// error.
func query[Row any](
	ctx context.Context, on dbsqlc.DBTX, doing, sql string, args []any, word func(Row) []Finding,
) (found []Finding, err error) {
	rows, _ := on.Query(ctx, sql, args...)
	values, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	for _, value := range values {
		found = append(found, word(value)...)
	}
	return found, nil
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

// tables are the schemas and names of the parents.
func (t Target) tables() (schemas, names []string) {
	for _, parent := range t.Parents {
		schemas, names = append(schemas, parent.Schema), append(names, parent.Table)
	}
	return schemas, names
}

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

// Finding is one problem that a check has found.
type Finding struct {
	// Severity is error if work is not done or not recorded, warning if it is slow or
	// late, and info if the state may be intended.
	Severity problem.Severity `json:"severity"`
	// Check is the name of the check. Database is the configured name, empty if the
	// finding concerns no single database. Report sets both.
	Check    string `json:"check"`
	Database string `json:"database"`
	// Object is the subject of the finding: a table, a role, a setting, a key of a file.
	Object  string `json:"object"`
	Message string `json:"message"`
	// Fix is a statement, a command or an instruction that solves the problem.
	Fix string `json:"fix"`
}

// One returns a list with one finding.
func One(severity problem.Severity, object, message, fix string) []Finding {
	return []Finding{{Severity: severity, Object: object, Message: message, Fix: fix}}
}

// Result is the result of a check.
type Result string

// The results.
const (
	OK    Result = "ok"
	Found Result = "found"
	// Failed means that the check could not run. A finding has the reason.
	Failed Result = "failed"
	// Skipped means that a finding of another check makes the check pointless.
	Skipped Result = "skipped"
)

// Check is the result of one check of one database.
type Check struct {
	Check    string `json:"check"`
	Database string `json:"database"`
	Result   Result `json:"result"`
}

// Report collects checks and findings in order.
type Report struct {
	// Roles are the checked roles, by database.
	Roles    map[string]Role `json:"roles"`
	Findings []Finding       `json:"findings"`
	Checks   []Check         `json:"checks"`
}

// NewReport returns an empty report. Its empty lists are JSON arrays, not null.
func NewReport() *Report {
	return &Report{Roles: map[string]Role{}, Findings: []Finding{}, Checks: []Check{}}
}

// patience limits the time of one check: another session may have locked the catalog.
const patience = 20 * time.Second

// Findings converts problems of files to findings, without duplicates: a cycle has the
// same problem in several definitions.
func Findings(problems problem.List) []Finding {
	found := make([]Finding, 0, len(problems))
	for _, p := range problems {
		place := p.Position.String()
		message, fix := p.Message, "correct it in "+p.Position.File
		if p.Key != "" && place != "" {
			message = place + ": " + message
		}
		if p.Severity == problem.Info {
			fix = "no action if this is intended"
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

// Run runs a check, adds its findings, and reports whether it had none.
func (r *Report) Run(ctx context.Context, check, database string,
	examine func(context.Context) ([]Finding, error),
) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := examine(ctx)
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

// RunIf runs a check if applies is set, and otherwise records it as skipped.
func (r *Report) RunIf(ctx context.Context, applies bool, check, database string,
	examine func(context.Context) ([]Finding, error),
) bool {
	if applies {
		return r.Run(ctx, check, database, examine)
	}
	r.Checks = append(r.Checks, Check{Check: check, Database: database, Result: Skipped})
	return false
}

// Count returns the number of findings with the severity.
func (r *Report) Count(severity problem.Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// Sick reports whether a finding is an error or a warning. Information does not count,
// so that checks can pass before the first worker runs.
func (r *Report) Sick() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != problem.Info })
}

// fixFor returns the fix for a check that failed.
func fixFor(err error) string {
	switch {
	case pgcatalog.SQLState(err) == "42501":
		return "run the statements that `sexton grants` prints"
	case errors.Is(err, context.DeadlineExceeded):
		return "check the server for load and locks, and run `sexton doctor` again"
	default:
		return "correct the cause of this error, and run `sexton doctor` again"
	}
}

//go:embed queries
var sqlFiles embed.FS

// sqlText returns an embedded query.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// Target is a connected database and its configuration.
type Target struct {
	Database database.Database
	// Installed reports that the database has Sexton's tables in the versions that this
	// program needs.
	Installed bool
	// Schema lists the objects of Sexton on which the worker's role needs rights.
	Schema migrate.Database
	// Role is the role whose rights are checked.
	Role Role
	// Connections is the maximum number of connections of one worker to this database.
	Connections int
	// Parents are the tracked tables; nil if the definitions cannot be read.
	Parents []Parent

	// OldTransaction is the age from which a transaction is a finding; 0 means 1 h.
	OldTransaction time.Duration
	// Hearing is the maximum time for a notification to arrive; 0 means 2 s.
	Hearing time.Duration
}

// Role is a database role whose rights are checked.
type Role struct {
	Name string `json:"role"`
	// Other reports that the checks connect with another role.
	Other bool `json:"other"`
	// Source is one of the sources below.
	Source string `json:"source"`
}

// The values of Role.Source: where the checked role comes from.
const (
	Named  = "named by --role"
	Worker = "role of the newest running worker"
	OfURL  = "role of the configured URL, because no worker is running"
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
	run  func(context.Context) ([]Finding, error)
	// needs reports whether the check applies, given the names of the checks that passed;
	// nil means always.
	needs func(passed map[string]bool) bool
}

// checks returns all checks in order.
func (t Target) checks() []check {
	reading := func(run func(context.Context, pgx.Tx) ([]Finding, error)) func(context.Context) ([]Finding, error) {
		return func(ctx context.Context) ([]Finding, error) { return t.read(ctx, run) }
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

// Examine runs all checks of one database. A database without a pool has no checks.
func Examine(ctx context.Context, report *Report, t Target) {
	passed := map[string]bool{}
	for _, c := range t.checks() {
		applies := t.Database.Pool != nil && (c.needs == nil || c.needs(passed))
		passed[c.name] = report.RunIf(ctx, applies, c.name, t.Database.Name, c.run)
	}
}

// read runs a check in a read-only transaction with pinned settings, so that names are
// printed the same way with any settings of database and role.
func (t Target) read(ctx context.Context, run func(context.Context, pgx.Tx) ([]Finding, error)) (
	found []Finding, err error,
) {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, t.Database.Pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pgcatalog.Pinned()); err != nil {
			return fmt.Errorf("pin the settings of the session: %w", err)
		}
		found, err = run(ctx, tx)
		return err
	})
	return found, err
}

// query runs a statement and returns the findings that judge returns for its rows. doing
// names the purpose in errors.
func query[Row any](
	ctx context.Context, on dbsqlc.DBTX, doing, sql string, args []any, judge func(Row) []Finding,
) (found []Finding, err error) {
	rows, _ := on.Query(ctx, sql, args...)
	values, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	for _, value := range values {
		found = append(found, judge(value)...)
	}
	return found, nil
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

// tables returns the schemas and names of the parents.
func (t Target) tables() (schemas, names []string) {
	for _, parent := range t.Parents {
		schemas, names = append(schemas, parent.Schema), append(names, parent.Table)
	}
	return schemas, names
}

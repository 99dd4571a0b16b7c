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
	// Severity is error if work is not done or not recorded, and warning if work is slow
	// or late. It is info if the state may be intended.
	Severity problem.Severity `json:"severity"`
	// Check is the name of the check. Database is the configured name of the database, or
	// empty if the finding concerns no single database. Report sets both fields.
	Check    string `json:"check"`
	Database string `json:"database"`
	// Object is the subject of the finding: a table, a role, a setting, or a key of a
	// file.
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

// The constants are all values of Result.
const (
	OK    Result = "ok"
	Found Result = "found"
	// Failed means that the check could not run. A finding contains the error.
	Failed Result = "failed"
	// Skipped means that the check does not apply, for example because an earlier check
	// had a finding.
	Skipped Result = "skipped"
)

// Check is the result of one check of one database.
type Check struct {
	Check    string `json:"check"`
	Database string `json:"database"`
	Result   Result `json:"result"`
}

// Report collects the results of checks and their findings, in the order of the checks.
type Report struct {
	// Roles maps the names of databases to the checked roles.
	Roles    map[string]Role `json:"roles"`
	Findings []Finding       `json:"findings"`
	Checks   []Check         `json:"checks"`
}

// NewReport returns an empty report. Its lists are not nil, so that they are JSON arrays.
func NewReport() *Report {
	return &Report{Roles: map[string]Role{}, Findings: []Finding{}, Checks: []Check{}}
}

// checkTimeout limits the time of one check, because another session may have locked the
// catalog.
const checkTimeout = 20 * time.Second

// Findings converts problems of files to findings. It removes duplicates, because a cycle
// is the same problem in several definitions.
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

// sqlStart matches a fix that is an SQL statement.
var sqlStart = regexp.MustCompile(`^(ALTER|COMMIT|CREATE|DELETE|DROP|GRANT|REINDEX|REVOKE|SELECT|UPDATE) `)

// Run runs a check and adds its findings to the report. It returns true if the check has
// no finding.
func (r *Report) Run(ctx context.Context, check, database string,
	examine func(context.Context) ([]Finding, error),
) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
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

// RunIf runs a check if applies is set, and otherwise records the check as skipped.
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

// Sick reports whether a finding is an error or a warning. It ignores information, so
// that the report is healthy before the first worker runs.
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

// sqlText returns the embedded query with the given name.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// Target is a connected database with the values that its checks need.
type Target struct {
	Database database.Database
	// Installed reports whether the database has Sexton's tables in the versions that
	// this program needs.
	Installed bool
	// Schema lists the objects of Sexton on which the worker's role needs privileges.
	Schema migrate.Database
	// Role is the role whose privileges are checked.
	Role Role
	// Connections is the maximum number of connections of one worker to this database.
	Connections int
	// Parents lists the tracked tables. It is nil if the definitions cannot be read.
	Parents []Parent

	// OldTransaction is the age from which an open transaction is a finding. 0 means 1 h.
	OldTransaction time.Duration
	// NotifyTimeout is the maximum time for a notification to arrive. 0 means 2 s.
	NotifyTimeout time.Duration
}

// Role is a database role whose privileges are checked.
type Role struct {
	Name string `json:"role"`
	// Other reports whether the checks connect as a different role.
	Other bool `json:"other"`
	// Source is Named, Worker or OfURL.
	Source string `json:"source"`
}

// The constants are the values of Role.Source: the reasons why the role is checked.
const (
	Named  = "named by --role"
	Worker = "role of the newest running worker"
	OfURL  = "role of the configured URL, because no worker is running"
)

// Parent is a table whose deletions are recorded.
type Parent struct {
	Schema, Table string
	// Recorded is the name of the table in tombstones.
	Recorded string
}

// check is one check that Examine runs.
type check struct {
	name string
	run  func(context.Context) ([]Finding, error)
	// needs reports whether the check applies. passed holds the names of earlier checks
	// without findings. If needs is nil, the check always applies.
	needs func(passed map[string]bool) bool
}

// checks returns all checks of a database in order.
func (t Target) checks() []check {
	reading := func(run func(context.Context, pgx.Tx) ([]Finding, error)) func(context.Context) ([]Finding, error) {
		return func(ctx context.Context) ([]Finding, error) { return t.read(ctx, run) }
	}
	// The LISTEN check requires a server that accepts writes, because Postgres does not
	// allow LISTEN during recovery.
	writable := func(passed map[string]bool) bool { return passed["recovery"] }
	sameRole := func(map[string]bool) bool { return !t.Role.Other }
	known := func(map[string]bool) bool { return t.Installed && t.Parents != nil }
	return []check{
		{"version", reading(version), nil},
		{"recovery", reading(recovery), nil},
		{"listen", t.listen, writable},
		{"statistics", reading(t.statistics), nil},
		{"transactions", reading(t.transactions), nil},
		{"prepared_transactions", reading(t.prepared), nil},
		{"settings", reading(settings), sameRole},
		{"superusers", reading(t.superusers), nil},
		{"search_path", t.path, sameRole},
		{"connections", reading(t.room), nil},
		{"privileges", reading(t.privileges), nil},
		{"partitions", reading(t.partitions), nil},
		{"tombstones", reading(t.tombstones), known},
	}
}

// Examine runs all checks of one database. If the database has no pool, all checks are
// skipped.
func Examine(ctx context.Context, report *Report, t Target) {
	passed := map[string]bool{}
	for _, c := range t.checks() {
		applies := t.Database.Pool != nil && (c.needs == nil || c.needs(passed))
		passed[c.name] = report.RunIf(ctx, applies, c.name, t.Database.Name, c.run)
	}
}

// read runs a check in a read-only transaction. It pins the settings of the session, so
// that names are printed in the same way for all databases and roles.
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

// query runs a statement and calls judge for each row. It returns all findings of judge.
// Errors begin with doing, the purpose of the query.
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

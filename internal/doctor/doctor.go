package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/problem"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	// Severity is error for what keeps work from being done or leaves it unrecorded, warning for what makes it
	// slow or late, info for what may well be meant so.
	Severity problem.Severity `json:"severity"`
	// Check is the name of the check that found it, Database the configured name; empty where a finding
	// concerns no single database. Report fills in both.
	Check    string `json:"check"`
	Database string `json:"database"`
	// Object is the subject of the finding: a table, a role, a setting, a key of a file.
	Object  string `json:"object"`
	Message string `json:"message"`
	// Fix says what to do, as a statement or command where there is one.
	Fix string `json:"fix"`
}

// one is a single finding.
func one(severity problem.Severity, object, message, fix string) []Finding {
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
	Findings []Finding `json:"findings"`
	Checks   []Check   `json:"checks"`
}

// NewReport returns an empty report, whose lists are JSON arrays also where they stay empty.
func NewReport() *Report { return &Report{Findings: []Finding{}, Checks: []Check{}} }

// patience bounds one check: a catalogue that another session has locked must not hold up the others for ever.
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
		finding := Finding{Severity: p.Severity, Object: cmp.Or(p.Key, place), Message: message, Fix: cmp.Or(p.Fix, fix)}
		if !slices.Contains(found, finding) {
			found = append(found, finding)
		}
	}
	return found
}

// Run makes a check and reports whether it found nothing.
func (r *Report) Run(ctx context.Context, check, database string, look func(context.Context) ([]Finding, error)) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := look(ctx)
	result := OK
	switch {
	case err != nil:
		result = Failed
		found = append(found, one(problem.Error, check, fmt.Sprintf("the check failed: %v", err), remedy(err))...)
	case len(found) > 0:
		result = Found
	}
	for _, f := range found {
		f.Check, f.Database = check, database
		r.Findings = append(r.Findings, f)
	}
	r.Checks = append(r.Checks, Check{Check: check, Database: database, Result: result})
	return result == OK
}

// Skip notes checks that were not made.
func (r *Report) Skip(database string, checks ...string) {
	for _, check := range checks {
		r.Checks = append(r.Checks, Check{Check: check, Database: database, Result: Skipped})
	}
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

// Sick reports whether something needs attention. Information alone does not: a preflight must be able to pass
// before the first worker runs.
func (r *Report) Sick() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != problem.Info })
}

// remedy names the way out of a check that failed.
func remedy(err error) string {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgErr.Code == "42501":
		return "run the statements that `sexton migrate up --print-grants` prints"
	case errors.Is(err, context.DeadlineExceeded):
		return "look what the server is busy with or who holds locks, and run `sexton doctor` again"
	default:
		return "put right what the server says, and run `sexton doctor` again"
	}
}

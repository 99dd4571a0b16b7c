package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func TestHealthyDatabase(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	report := doctor.NewReport()
	doctor.Examine(t.Context(), report, p.target)
	require.Empty(t, unexpectedFindings(report))
	require.False(t, report.Sick())
	for _, check := range report.Checks {
		if check.Check == "superusers" {
			continue
		}
		require.Equal(t, doctor.OK, check.Result, check.Check)
	}
	require.Len(t, report.Checks, 13)
}

// In a database without Sexton's tables, no check fails or has a finding.
func TestDatabaseWithoutSexton(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.DB.Database = pgtest.New(t)
	p.connect(p.URL)
	p.target.Installed, p.target.Parents = false, nil
	report := doctor.NewReport()
	doctor.Examine(t.Context(), report, p.target)
	require.Empty(t, unexpectedFindings(report))
	require.Contains(t, report.Checks, doctor.Check{Check: "tombstones", Database: "main", Result: doctor.Skipped})
}

func TestFailedCheckIsAFinding(t *testing.T) {
	t.Parallel()
	report := doctor.NewReport()
	denied := &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for table runs"}
	for _, err := range []error{denied, context.DeadlineExceeded, errors.New("broken")} {
		require.False(t, report.Run(t.Context(), "some", "main",
			func(context.Context) ([]doctor.Finding, error) { return nil, err }))
	}
	require.True(t, report.Run(t.Context(), "next", "", func(ctx context.Context) ([]doctor.Finding, error) {
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		return nil, nil
	}))
	require.Equal(t, []doctor.Check{
		{Check: "some", Database: "main", Result: doctor.Failed},
		{Check: "some", Database: "main", Result: doctor.Failed},
		{Check: "some", Database: "main", Result: doctor.Failed},
		{Check: "next", Result: doctor.OK},
	}, report.Checks)
	require.Equal(t, doctor.Finding{
		Severity: problem.Error, Check: "some", Database: "main", Object: "some",
		Message: "the check failed: ERROR: permission denied for table runs (SQLSTATE 42501)",
		Fix:     "run the statements that `sexton grants` prints",
	}, report.Findings[0])
	require.Contains(t, report.Findings[1].Fix, "load and locks")
	require.Equal(t, "the check failed: broken", report.Findings[2].Message)
	require.True(t, report.Sick())
}

func TestSickIgnoresInformation(t *testing.T) {
	t.Parallel()
	report := doctor.NewReport()
	encoded := pgtest.Must(json.Marshal(report))(t)
	require.JSONEq(t, `{"roles": {}, "findings": [], "checks": []}`, string(encoded))
	for _, test := range []struct {
		severity problem.Severity
		sick     bool
	}{{problem.Info, false}, {problem.Warning, true}, {problem.Error, true}} {
		report.Run(t.Context(), "some", "main", func(context.Context) ([]doctor.Finding, error) {
			return []doctor.Finding{{Severity: test.severity, Object: "o", Message: "m", Fix: "f"}}, nil
		})
		require.Equal(t, test.sick, report.Sick(), test.severity)
		require.Equal(t, 1, report.Count(test.severity))
	}
	encoded = pgtest.Must(json.Marshal(report.Findings[0]))(t)
	require.JSONEq(t,
		`{"severity": "info", "check": "some", "database": "main", "object": "o", "message": "m", "fix": "f"}`,
		string(encoded))
}

func TestClosedPool(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.target.Database.Pool.Close()
	report := doctor.NewReport()
	doctor.Examine(t.Context(), report, p.target)
	require.Contains(t, report.Checks, doctor.Check{Check: "version", Database: "main", Result: doctor.Failed})
	require.Contains(t, report.Checks, doctor.Check{Check: "tombstones", Database: "main", Result: doctor.Failed})
}

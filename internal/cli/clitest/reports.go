package clitest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
)

// StatusOf returns three parts of `sexton status --json`: the only deletion table, the
// only job, and the leases.
func (s *Site) StatusOf() (table, job map[string]any, leases []any) {
	s.Tb.Helper()
	document, ok := s.JSON(0, "status").(map[string]any)
	require.True(s.Tb, ok)
	first := func(key string) map[string]any {
		list, ok := document[key].([]any)
		require.True(s.Tb, ok)
		require.Len(s.Tb, list, 1)
		entry, ok := list[0].(map[string]any)
		require.True(s.Tb, ok)
		return entry
	}
	leases, ok = document["leases"].([]any)
	require.True(s.Tb, ok)
	return first("deletion_tables"), first("jobs"), leases
}

// RunDoctor runs doctor and returns its report. It requires the exit code, and that the
// command changes nothing.
func (s *Site) RunDoctor(code int) (doctor.Report, Result) {
	s.Tb.Helper()
	before := s.Snapshot()
	r := s.Run("doctor", "--json")
	require.Equal(s.Tb, code, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Equal(s.Tb, before, s.Snapshot(), "doctor changed the database")
	var report doctor.Report
	require.NoError(s.Tb, json.Unmarshal([]byte(r.Stdout), &report), r.Stdout)
	// Tests connect as a superuser. Remove the finding about that role.
	report.Findings = slices.DeleteFunc(report.Findings, func(f doctor.Finding) bool {
		return f.Severity == problem.Info && f.Check == "superusers" && strings.Contains(f.Message, "is a superuser")
	})
	for i, c := range report.Checks {
		if c.Check == "superusers" && c.Result == doctor.Found &&
			!slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.Check == c.Check }) {
			report.Checks[i].Result = doctor.OK
		}
	}
	return report, r
}

// CheckResult returns the result of one check and its findings. A finding is one line:
// severity, object, message, fix.
func (s *Site) CheckResult(report doctor.Report, check string) (result doctor.Result, lines []string) {
	s.Tb.Helper()
	for _, c := range report.Checks {
		if c.Check == check {
			result = c.Result
		}
	}
	for _, f := range report.Findings {
		require.NotEmpty(s.Tb, f.Object, f)
		require.NotEmpty(s.Tb, f.Fix, f)
		if f.Check == check {
			lines = append(lines, strings.ReplaceAll(strings.Join([]string{
				string(f.Severity), f.Object, f.Message,
				f.Fix,
			}, " | "), s.Dir, "DIR"))
		}
	}
	return result, lines
}

// ChecksWithProblems returns the names of the checks with an error or a warning.
func ChecksWithProblems(report doctor.Report) []string {
	var names []string
	for _, f := range report.Findings {
		if f.Severity != "info" && !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	return names
}

package clitest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
)

// StatusOf returns the first deletion table, the first job and the leases of the status.
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

// Examined runs the doctor, which must end with the exit code and change nothing.
func (s *Site) Examined(code int) (doctor.Report, Result) {
	s.Tb.Helper()
	before := s.Snapshot()
	r := s.Run("doctor", "--json")
	require.Equal(s.Tb, code, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Equal(s.Tb, before, s.Snapshot(), "something was changed")
	var report doctor.Report
	require.NoError(s.Tb, json.Unmarshal([]byte(r.Stdout), &report), r.Stdout)
	// The tests connect as a superuser, which doctor says of each database.
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

// Diagnosis returns the result of one check, with the findings as one line each:
// severity, object, message, fix.
func (s *Site) Diagnosis(report doctor.Report, check string) (result doctor.Result, lines []string) {
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

// Found returns the checks with findings above the severity info.
func Found(report doctor.Report) []string {
	var names []string
	for _, f := range report.Findings {
		if f.Severity != "info" && !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	return names
}

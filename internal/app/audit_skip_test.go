package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/loosefk"
)

func TestAuditSkipsChildrenInAnotherDatabase(t *testing.T) {
	t.Parallel()
	reference := &loosefk.Reference{
		Definition: definitions.Definition{Key: "builds[0]", Columns: []string{"project_id"}}, Database: "ci", Remote: true, Child: loosefk.Table{Schema: "public", Name: "builds"},
	}
	parent := &loosefk.Parent{Table: loosefk.Table{Schema: "public", Name: "projects"}, References: []*loosefk.Reference{reference}}
	one := pair{database: "main", parent: parent, reference: reference}
	report, err := one.audit(t.Context(), loosefk.Auditor{})
	require.NoError(t, err)
	require.Equal(t, "the child is in database ci, its parent in main", report.Skipped)
	document := auditDocument{}
	document.add("main", report)
	require.NoError(t, document.verdict(false))
	require.Equal(t, "skipped: the child is in database ci, its parent in main", document.Definitions[0].remarks())
}

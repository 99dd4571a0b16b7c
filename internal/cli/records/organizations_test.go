package records_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

const organizationSettings = `loose_foreign_keys: {enabled: false}
adjourned_groups:
  enabled: true
  groups: {table: organizations, key: id, parent: above, marked_on: deleted_on, marked_by: deleted_by}
  period: 30d
  period_column: days
  rename: [slug]
  may_remove: may_remove
`

// What the configured table of groups and the rule lack is reported by name, before and
// after the installation.
func TestGroupsThatDoNotFitAreReported(t *testing.T) {
	t.Parallel()
	s := clitest.Prepared(t, `
		CREATE TABLE organizations (id uuid PRIMARY KEY, above uuid REFERENCES organizations, slug text, days bigint, deleted_on date, deleted_by bigint, number bigint);
		CREATE INDEX ON organizations (above);
		CREATE FUNCTION may_remove(uuid, bigint) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT NULL'`,
		"loose_foreign_keys: {enabled: false}\n")
	check := []string{"config", "check", "--connect"}
	for range 2 {
		for _, test := range []struct{ from, to, says string }{
			{"table: organizations", "table: companies", "there is no table companies in schema public"},
			{"key: id", "key: uid", "table organizations has no column uid"},
			{"key: id, parent: above", "key: number", "organizations.number has no unique index"},
			{"parent: above", "parent: below", "table organizations has no column below"},
			{
				"parent: above", "parent: number",
				"adjourned_groups.groups.parent: organizations.number is of type bigint instead of that of the key",
			},
			{
				"deleted_on,", "deleted_at,",
				"adjourned_groups.groups.marked_on: table organizations has no column deleted_at",
			},
			{
				"deleted_on,", "number,",
				"adjourned_groups.groups.marked_on: organizations.number is of type bigint instead of date",
			},
			{"deleted_by}", "days_on}", "adjourned_groups.groups.marked_by: table organizations has no column days_on"},
			{
				"deleted_by}", "deleted_on}",
				"adjourned_groups.groups.marked_by: organizations.deleted_on is of type date instead of bigint, integer, uuid or text",
			},
			{
				"period_column: days", "period_column: slug",
				"adjourned_groups.period_column: organizations.slug is of type text instead of integer",
			},
			{"[slug]", "[name]", "adjourned_groups.rename[0]: table organizations has no column name"},
			{
				"may_remove: may_remove", "may_remove: nothing",
				`adjourned_groups.may_remove: the function "public"."nothing"(uuid, bigint) does not exist`,
			},
		} {
			require.Contains(t, organizationSettings, test.from)
			s.Configure(s.URL, strings.Replace(organizationSettings, test.from, test.to, 1))
			s.Says(2, test.says, check...)
		}
		s.Configure(s.URL, organizationSettings)
		require.Equal(t, "ok: 1 database, 0 definitions\n", s.OK(check...))
		s.OK("migrate", "up")
	}
	report, _ := s.Examined(0)
	for _, f := range report.Findings {
		require.NotContains(t, f.Message, "the check failed", "doctor")
	}
}

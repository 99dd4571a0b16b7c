package app

import (
	"context"

	"sexton/internal/doctor"
	"sexton/internal/migrate"
	"sexton/internal/problem"
)

// ownerFindings tells of functions with more rights than they need, or fewer.
func ownerFindings(ctx context.Context, schema migrate.Database) ([]doctor.Finding, error) {
	risks, err := migrate.OwnerRisks(ctx, schema)
	found := make([]doctor.Finding, 0, len(risks))
	for _, risk := range risks {
		severity := problem.Warning
		if risk.Harmless {
			severity = problem.Info
		}
		found = append(found, doctor.Finding{Severity: severity, Object: risk.Object, Message: risk.Message, Fix: risk.Fix})
	}
	return found, err
}

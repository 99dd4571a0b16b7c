// Package yamlfile decodes the YAML files that people write for Sexton. The parser is
// goccy/go-yaml.
//
// Parse returns a tree of Nodes with the position of each value. Node.Set replaces values
// with those of variables and flags. Node.Decode fills a struct, replaces ${VARIABLES} and
// checks keys and types.
//
// Invariant: one call reports all errors, each with its position and key. No message
// repeats a value, because any value may be a misplaced secret. Tags, anchors, aliases and
// merge keys are refused.
package yamlfile

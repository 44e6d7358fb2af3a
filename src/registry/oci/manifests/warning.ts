/**
 * The `Warning` header that a deprecated tag's manifest carries: code 299, agent `-`, a quoted text, no date (OCI distribution specification 1.1, "Warnings").
 * A tag keeps no text of its own. Names are plain ASCII without quotes, so nothing needs escaping.
 */
export function deprecationWarning(repository: string, tag: string): string {
  return `299 - "tag ${tag} of ${repository} is deprecated (end of life)"`
}

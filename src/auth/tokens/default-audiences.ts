/** The audiences that mean this platform where an identity names none: base URL with and without final slash, its bare host, the registry host (docs/spec/tokens.md#default-audiences). */
export function defaultAudiences(baseUrl: string, registryHost: string): readonly string[] {
  return [...urlForms(baseUrl), new URL(baseUrl).host, registryHost]
}

/** A URL without and with its final slash: clients write either. */
export function urlForms(url: string): readonly [bare: string, slashed: string] {
  const bare = url.replace(/\/+$/, '')
  return [bare, `${bare}/`]
}

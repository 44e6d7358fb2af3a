/** Formats milliseconds since 1970 as a Kubernetes MicroTime. */
export function microTimeOf(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z')
}

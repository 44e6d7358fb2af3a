/** Milliseconds since 1970 as Kubernetes writes a MicroTime. */
export function microTimeOf(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z')
}

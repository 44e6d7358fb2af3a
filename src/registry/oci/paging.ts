import { RegistryError } from '../registry-error.ts'

/** How many items a page holds at most, whatever `n` says. */
export const maxPageItems = 1000

/** The parameter `n`: how many items a page may hold. Absent means as many as there may be. Throws UNSUPPORTED (400) where it is no such number. */
export function parsePageLimit(query: URLSearchParams): number {
  const text = query.get('n')
  if (text === null) return maxPageItems
  if (!/^\d{1,15}$/.test(text)) throw new RegistryError('UNSUPPORTED', 'n must be a number, 0 or more', { status: 400 })
  return Math.min(Number(text), maxPageItems)
}

/** The `Link` header that leads to the next page (RFC 8288). */
export function nextLink(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, value)
  return `<${path}?${query.toString()}>; rel="next"`
}

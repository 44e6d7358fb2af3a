import { InvalidArgumentError } from 'commander'

/** A number of hours, 0 included. Throws InvalidArgumentError. */
export function parseHours(text: string): number {
  const hours = Number(text)
  if (text.trim() === '' || !Number.isFinite(hours) || hours < 0) throw new InvalidArgumentError('It is a number of hours, 0 or more.')
  return hours
}

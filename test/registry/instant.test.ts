import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseInstant, perMillisecond } from '../../src/registry/tags/history-route.ts'

const noon = Date.UTC(2026, 0, 31, 12)

/** The instant in milliseconds, to the precision of a number. */
function msOf(text: string): number | undefined {
  const instant = parseInstant(text)
  if (instant === undefined) return undefined
  const whole = instant / perMillisecond
  return Number(whole) + Number(instant - whole * perMillisecond) / Number(perMillisecond)
}

describe('instants of ISO 8601', () => {
  test.for([
    ['2026-01-31T12:00:00Z', noon],
    ['2026-01-31T12:00:00.000Z', noon],
    ['2026-01-31T12:00:00,5Z', noon + 500],
    ['2026-01-31T12:00:00.123456789Z', noon + 123.456_789],
    ['2026-01-31T12:00:00.123000000Z', noon + 123],
    ['2026-01-31T12:00:00.000000000000000001Z', noon + 1e-15],
    ['2026-01-31t12:00:00z', noon],
    ['2026-01-31T12:00Z', noon],
    ['2026-01-31T12Z', noon],
    ['2026-01-31T12.5Z', noon + 1_800_000],
    ['2026-01-31T12:00.5Z', noon + 30_000],
    ['20260131T120000Z', noon],
    ['20260131T1200Z', noon],
    ['20260131T120000.5Z', noon + 500],
    ['2026-01-31T14:00:00+02:00', noon],
    ['2026-01-31T14:00:00+0200', noon],
    ['2026-01-31T14:00:00+02', noon],
    ['2026-01-31T14:00:00 02:00', noon],
    ['2026-01-31T06:30:00-05:30', noon],
    ['2026-01-31T12:00:00+00:00', noon],
    ['2026-01-31T12:00:00-00:00', noon],
    ['2026-01-31T12:00:00', noon],
    ['2026-01-31 12:00:00', noon],
    ['2026-01-31 12:00:00 02:00', noon - 7_200_000],
    ['2026-02-01T01:00:00+13:00', noon],
    ['2026-01-31', Date.UTC(2026, 0, 31)],
    ['20260131', Date.UTC(2026, 0, 31)],
    ['2026-01', Date.UTC(2026, 0, 1)],
    ['2026', Date.UTC(2026, 0, 1)],
    ['2026-031', Date.UTC(2026, 0, 31)],
    ['2026031', Date.UTC(2026, 0, 31)],
    ['2026-031T12:00Z', noon],
    ['2026-W05-6', Date.UTC(2026, 0, 31)],
    ['2026W056T12Z', noon],
    ['2026-W05', Date.UTC(2026, 0, 26)],
    ['2026-W01-1', Date.UTC(2025, 11, 29)],
    ['2020-W53-5', Date.UTC(2021, 0, 1)],
    ['2024-02-29', Date.UTC(2024, 1, 29)],
    ['2024-366', Date.UTC(2024, 11, 31)],
    ['2026-01-31T24:00:00Z', Date.UTC(2026, 1, 1)],
    ['2016-12-31T23:59:60Z', Date.UTC(2016, 11, 31, 23, 59, 59)],
    [' 2026-01-31T12:00:00Z ', noon],
    ['0001-01-01', -62_135_596_800_000],
  ] as const)('%s', ([text, ms]) => {
    expect(msOf(text)).toBe(ms)
  })

  test.for([
    ...[
      '',
      ' ',
      'now',
      'yesterday',
      '1769860800',
      '1769860800000',
      '26-01-31',
      '2026-1-31',
      '2026-01-1',
      '2026-13-01',
      '2026-00-01',
      '2026-02-29',
      '2026-02-30',
    ],
    ...[
      '2026-01-32',
      '2026-01-00',
      '2026-366',
      '2026-000',
      '2026-W54',
      '2025-W53',
      '2026-W00',
      '2026-W05-8',
      '2026-W05-0',
      '2026-01-31T',
      '2026-01-31T1',
      '2026-01-31T25:00',
    ],
    ...['2026-01-31T24:00:01Z', '2026-01-31T12:60Z', '2026-01-31T12:00:61Z', '2026-01-31T12:00:00.Z', '2026-01-31T12:00:00+24:00', '2026-01-31T12:00:00+01:60'],
    ...[
      '2026-01-31T12:00:00ZZ',
      '2026-01-31T12:00:00 UTC',
      '2026-01-31T12:00:00+',
      'T12:00:00Z',
      '2026T12:00Z',
      '2026-01T12:00Z',
      '2026-W05T12:00Z',
      '2026-01-31T12:00:00Z/P1D',
    ],
    ...[
      '+2026-01-31',
      '-2026-01-31',
      '2026/01/31',
      'Sat, 31 Jan 2026 12:00:00 GMT',
      '2026-01-31T12:00:00Z\n2026',
      '٢٠٢٦-01-31',
      '2026-01-31T12:00:00'.padEnd(80, '0'),
    ],
  ])('%j is not an instant', (text) => {
    expect(parseInstant(text)).toBeUndefined()
  })

  test('instants of ISO 8601 use every digit of a second', () => {
    const [one = 0n, other = 0n] = ['2026-01-31T12:00:00.000000000000000001Z', '2026-01-31T12:00:00Z'].map(parseInstant)
    expect(one - other).toBe(1n)
  })

  test('instants of ISO 8601 are read back as written', () => {
    const date = fc.date({ min: new Date('0001-01-01T00:00:00Z'), max: new Date('9999-12-31T23:59:59.999Z'), noInvalidDate: true })
    fc.assert(
      fc.property(date, fc.integer({ min: -1439, max: 1439 }), (at, minutes) => {
        expect(msOf(at.toISOString())).toBe(at.getTime())
        const local = new Date(at.getTime() + minutes * 60_000)
        if (local.getUTCFullYear() < 1 || local.getUTCFullYear() > 9999) return
        const [hours, rest] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60]
        const zone = `${minutes < 0 ? '-' : '+'}${String(hours).padStart(2, '0')}:${String(rest).padStart(2, '0')}`
        expect(msOf(local.toISOString().replace('Z', zone))).toBe(at.getTime())
      }),
    )
  })
})

/**
 * How many times longer than usual the model tests and the kill tests go on: `TAPROOT_SOAK`, a whole number, 1 without it. Throws where it is something
 * else.
 */
export const soakFactor = readFactor(process.env['TAPROOT_SOAK'])

/** A test's time-out in milliseconds, as vitest takes it: none while soaking, since what is long then is meant to be. */
export function timeoutUnlessSoaking(milliseconds: number): number {
  return soakFactor === 1 ? milliseconds : 0
}

function readFactor(text = '1'): number {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`TAPROOT_SOAK is no whole number above 0: ${text}`)
  return Number(text)
}

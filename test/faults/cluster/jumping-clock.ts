// Loaded before a program (`node --import`): its wall clock jumps as its parent says, for everything in it that asks for the time. Timers go by the machine's
// monotonic clock and feel nothing, as when an operator sets the time of a real machine. The program ends with its parent.
const RealDate = Date
const realNow = Date.now.bind(Date)
let offsetMs = Number(process.env['FAULTS_CLOCK_OFFSET_MS'] ?? 0)

Date.now = () => realNow() + offsetMs
globalThis.Date = new Proxy(RealDate, {
  construct: (target, args, newTarget) => Reflect.construct(target, args.length === 0 ? [Date.now()] : args, newTarget) as object,
})

process.on('message', (message: { readonly offsetMs?: number }) => {
  offsetMs = message.offsetMs ?? offsetMs
})
process.on('disconnect', () => process.exit(0))
// The channel alone must not keep the program running.
process.channel?.unref()

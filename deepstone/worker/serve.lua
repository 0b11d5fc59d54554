-- The worker in Lua: runs steps for the controller, for frameworks of LuaJIT. The protocol is that of serve.py.
--
-- Run as `luajit serve.lua BACKEND_FILE READ_FD WRITE_FD`. BACKEND_FILE returns a function that imports the framework and
-- returns a backend: a table with the methods of `Backend` in backends/base.py that it has, called with a colon. What it
-- does not have is unsupported. In place of exceptions it calls error() with one of the tables that `unsupported` and
-- `missing` make. `require 'deepstone.worker.npy'` and the like give it the tools in this folder.
--
-- Arrays are tables {kind, shape, values} as in npy.lua. A job is what `prepare` got, with the request's batch as files.

-- Last on the path: the folder that holds the package holds others too, which must not hide the framework's own modules.
package.path = package.path .. ';' .. arg[0]:gsub('/?deepstone/worker/[^/]*$', '') .. '/?.lua'

local json = require 'deepstone.worker.json'
local npy = require 'deepstone.worker.npy'
local system = require 'deepstone.worker.system'

local PROTOCOL = 1

-- What the axes of several processes are in effect where there is one, as in serve.py.
local ALONE = {
   processes = 1, nodes = 1, launcher = 'local', scheme = 'none', servers = 'none', pipeline = 'none',
   microbatches = 'none', schedule = 'none', library = 'none', transport = 'none', collective = 'none',
   interface = 'none', overlap = 'none', bucket = 'none', compression = 'none',
}

local LACKING = {
   layer = 'this backend does not run single layers',
   in_place = 'this backend does not time layers inside a step',
   isolated_layer = 'this backend does not time single layers',
   trace = 'this backend has no profiler that Deepstone reads',
   ceiling = "this backend does not measure a machine's ceilings",
   convolution = 'this framework does not let an algorithm be chosen for a convolution',
   memory_by_layer = 'this framework does not tell which layer takes which memory',
}

local function failed(outcome, reason)
   return {event = 'failed', outcome = outcome, reason = reason}
end

-- For backends: the framework cannot do what the job asks.
function unsupported(reason)
   error(failed('unsupported', reason), 0)
end

-- For backends: a device or library is missing; the reason says how to get it.
function missing(reason)
   error(failed('missing', reason), 0)
end

local backend, isolated, backend_file
local level_before_bytes, batch_bytes, saved_peak_bytes = 0, 0, 0

local function method(name)
   return backend[name] or unsupported(LACKING[name] or 'this backend has no ' .. name)
end

local function optional(name, otherwise)
   if backend[name] then
      return backend[name](backend)
   end
   return otherwise
end

local function as_observed(value)
   return {value = value, source = 'observed'}
end

local function as_set(value)
   return {value = value, source = 'set'}
end

local function in_effect()
   local found = backend:observe()
   for axis, value in pairs(ALONE) do
      found[axis] = as_observed(value)
   end
   found.affinity = as_observed(system.affinity())
   found.allocator = as_observed(system.allocator())
   if found.wait.value == 'auto' then  -- only backends of engines with OpenMP know it
      found.wait = as_set('not used')
   end
   found.power_limit = as_set("the board's own")
   return found
end

-- Times groups of steps. Nothing else happens in the loop; the garbage of earlier requests is collected before it.
local function time_steps(step, samples, steps_per_sample)
   local clock, times = system.clock, {}
   for position = 1, samples + 1 do
      times[position] = 0
   end
   collectgarbage()
   local start = clock()
   times[1] = start
   for position = 2, samples + 1 do
      for _ = 1, steps_per_sample do
         step()
      end
      times[position] = clock()
   end
   local total_s, step_s = clock() - start, json.array()
   for position = 1, samples do
      step_s[position] = (times[position + 1] - times[position]) / steps_per_sample
   end
   return {
      start_s = start, steps_per_sample = steps_per_sample, step_s = step_s, enqueue_s = total_s, total_s = total_s,
   }
end

local function led_and_timed(step, request)
   for _ = 1, request.lead or 0 do
      step()
   end
   return time_steps(step, request.samples, request.steps_per_sample)
end

local function peak_so_far(peak_bytes)
   return type(peak_bytes) == 'number' and math.max(peak_bytes, saved_peak_bytes) or peak_bytes
end

local function written(array, path)
   npy.write(path, array)
   return path
end

local known = {}

function known.hello(request)
   if request.protocol ~= PROTOCOL then
      error('controller speaks protocol ' .. tostring(request.protocol) .. ', worker ' .. PROTOCOL, 0)
   end
   if request.affinity ~= json.null and request.affinity then  -- before the import: thread pools size themselves by it
      system.set_affinity(request.affinity)
   end
   local start = system.clock()
   local make_backend = assert(loadfile(backend_file))()
   local found, made = pcall(make_backend)
   if not found then
      error(type(made) == 'table' and made or failed('missing', 'the framework does not import: ' .. tostring(made)), 0)
   end
   backend = made
   return {
      protocol = PROTOCOL,
      pid = system.pid(),
      runtime = jit.version,
      framework = backend:versions(),
      import_s = system.clock() - start,
   }
end

function known.clock()
   return {clock_s = system.clock()}
end

function known.prepare(request)
   level_before_bytes = system.host_bytes('VmRSS')
   batch_bytes = 0
   for _, path in pairs(request.batch or {}) do
      local header = npy.header(path)
      batch_bytes = batch_bytes + header.count * npy.BYTES[header.kind]
   end
   local start = system.clock()
   backend:build(request)
   local reply = {build_s = system.clock() - start}
   if request.first_step ~= false then
      start = system.clock()
      if backend.first_step then
         backend:first_step()
      else
         backend:step(backend:phase())()
      end
      reply.first_step_s = system.clock() - start
      reply.effective = in_effect()
      reply.details = optional('details', {})
   end
   reply.phases = optional('phases', false)
   return reply
end

function known.block(request)
   local program = request.program ~= '' and request.program or backend:phase()
   local timing = led_and_timed(backend:step(program), request)
   timing.cpu_s = system.cpu_s()
   return timing
end

-- Steps with a timestamp at the end of every phase. Their whole time is never reported as speed.
function known.phases(request)
   local names, times, found = backend:phases(), {}, {}
   for _ = 1, request.steps do
      local marks = {system.clock()}
      backend:step_in_phases(function(phase) marks[phase + 1] = system.clock() end)
      times[#times + 1] = marks
   end
   for place, name in ipairs(names) do
      local gaps = json.array()
      for step, marks in ipairs(times) do
         gaps[step] = marks[place + 1] - marks[place]
      end
      found[place] = {name, gaps}
   end
   return {phase_s = json.object(found)}
end

function known.losses(request)
   local step, losses = backend:step(backend:phase()), json.array()
   for count = 1, request.steps do
      step()
      losses[count] = string.format('%.17g', backend:loss())  -- as text: JSON has no NaN
   end
   if #losses == 0 then
      losses[1] = string.format('%.17g', backend:loss())
   end
   return {losses = losses}
end

function known.restore()
   return {}
end

function known.buckets()
   return {bytes = json.array()}
end

function known.assignment()
   return {stages = json.array(), sends = json.array()}
end

function known.open_timeline()
   return {programs = {absent = 'this backend does not tell when the parts of a step begin and end'}}
end

function known.logged_times()
   return {logged = {absent = 'this framework logs no times of its own'}}
end

function known.close_timeline()
   return {}
end

function known.observe()
   return {effective = in_effect()}
end

function known.dump(request)
   local files = {}
   for number, named in ipairs(backend:arrays(request.kind)) do
      local path = request.folder .. '/' .. request.kind .. '-' .. number - 1 .. '.npy'
      files[number] = {named[1], written(named[2], path)}
   end
   return {files = json.object(files)}
end

-- At most `most` values of every array, evenly spaced.
function known.sample(request)
   saved_peak_bytes = peak_so_far(system.host_peak_bytes())
   local arrays, picked, names, sizes = backend:arrays(request.kind), {}, json.array(), json.array()
   table.sort(arrays, function(a, b) return a[1] < b[1] end)
   for number, named in ipairs(arrays) do
      local array, size = named[2], 1
      for _, side in ipairs(array.shape) do
         size = size * side
      end
      local count = math.min(size, request.most)
      for place = 0, count - 1 do
         picked[#picked + 1] = tonumber(array.values[math.floor(place * size / count)])
      end
      names[number], sizes[number] = named[1], count
   end
   local values = npy.new('f8', #picked)
   for place, value in ipairs(picked) do
      values[place - 1] = value
   end
   local path = request.folder .. '/sample.npy'
   npy.write(path, {kind = 'f8', shape = {#picked}, values = values})
   system.forget_host_peak()
   return {names = names, sizes = sizes, path = path}
end

-- One layer in isolation on given arrays; its results are left in files beside them.
function known.layer(request)
   local run, inputs, files = method('layer'), {}, json.array()
   for source, path in pairs(request.inputs) do
      inputs[source] = npy.read(path)
   end
   local upstream = request.upstream ~= json.null and npy.read(request.upstream) or nil
   for number, result in ipairs(run(backend, request.name, inputs, upstream)) do
      local kind, name, array = unpack(result)
      files[number] = json.array {kind, name, written(array, request.folder .. '/result-' .. number - 1 .. '.npy')}
   end
   return {files = files}
end

-- What each layer took inside each step; these steps' time is never reported as speed. A step is {total_s, data_s,
-- update_s, gaps_s, other {name, seconds}, layers {name, pass, seconds}}, the same names in the same order in each.
function known.layers(request)
   local found = method('in_place')(backend, request.steps)
   local reply = {method = found.method, rule = found.rule, layers = json.array(), other = json.object()}
   for _, part in ipairs {'total_s', 'data_s', 'update_s', 'gaps_s'} do
      reply[part] = json.array()
      for number, step in ipairs(found.steps) do
         reply[part][number] = step[part]
      end
   end
   -- What the entry in this place of `layers` or `other` took in each step, which is the last thing in it.
   local function times_of(part, place, last)
      local times = json.array()
      for number, step in ipairs(found.steps) do
         times[number] = step[part][place][last]
      end
      return times
   end
   for place, first in ipairs(found.steps[1].layers) do
      reply.layers[place] = json.array {first[1], first[2], times_of('layers', place, 3)}
   end
   for place, first in ipairs(found.steps[1].other) do
      reply.other[place] = {first[1], times_of('other', place, 2)}
   end
   return reply
end

-- Makes one layer ready to be timed in isolation; the one before it is freed.
function known.isolated(request)
   isolated = nil
   collectgarbage()
   isolated = method('isolated_layer')(backend, request.name)  -- programs {name, function} in order, and `beside`
   local names = json.array()
   for number, program in ipairs(isolated.programs) do
      names[number] = program[1]
   end
   return {programs = names, beside = isolated.beside or ''}
end

function known.isolated_block(request)
   for _, program in ipairs(isolated.programs) do
      if program[1] == request.program then
         return led_and_timed(program[2], request)
      end
   end
   error('no program ' .. request.program, 0)
end

function known.trace()
   method('trace')
end

function known.ceiling()
   method('ceiling')
end

function known.convolution()
   method('convolution')
end

function known.memory_by_layer()
   method('memory_by_layer')
end

local ON_CPU = {absent = 'the step ran on the CPU; see host_peak_bytes'}

function known.memory()
   return {
      memory = {
         device_allocated_bytes = ON_CPU,
         device_reserved_bytes = ON_CPU,
         host_peak_bytes = peak_so_far(system.host_peak_bytes()),
      },
   }
end

-- The most memory that further steps had at once: what the process grew by since before the network was built.
function known.memory_peak(request)
   local so_far, forgotten = peak_so_far(system.host_peak_bytes()), system.forget_host_peak()
   local step = backend:step(backend:phase())
   for _ = 1, request.steps do
      step()
   end
   local memory = known.memory().memory
   local grown = system.host_bytes('VmHWM') - level_before_bytes - batch_bytes
   memory.host_growth_bytes = grown
   if not forgotten then
      memory.host_growth_bytes = {absent = 'this kernel does not let go of a peak'}
   elseif grown < 0 then  -- what was freed meanwhile hides what steps need
      memory.host_growth_bytes = {absent = 'the process has less memory now than before the network was built'}
   end
   local now = system.host_peak_bytes()
   memory.host_peak_bytes = forgotten and type(now) == 'number' and math.max(so_far, now) or so_far
   return {
      memory = memory,
      available_bytes = {absent = 'this framework does not tell how much memory a device has'},
   }
end

-- Whatever goes wrong becomes a reply too: the controller decides what it means.
local function explain(problem)
   if type(problem) == 'table' and problem.event == 'failed' then
      return problem
   end
   local reason = tostring(problem)
   io.stderr:write(debug.traceback(reason, 2), '\n')
   return failed(reason:find('not enough memory', 1, true) and 'oom' or 'crashed', (reason:gsub('%s*\n.*', '')))
end

local function answer(request)
   local run = known[request['do']]
   if not run then
      return failed('unsupported', "this worker does not know how to do '" .. tostring(request['do']) .. "'")
   end
   local done, reply = xpcall(function() return run(request) end, explain)
   if done then
      reply.event = request['do']
   end
   return reply
end

local function main(module, read_fd, write_fd)
   backend_file = module
   for line in system.lines(read_fd) do  -- sleeps here between requests
      local request = json.decode(line)
      if request['do'] == 'close' then
         if backend and backend.close then
            backend:close()
         end
         system.write(write_fd, '{"event": "close"}\n')
         break
      end
      system.write(write_fd, json.encode(answer(request)) .. '\n')
   end
end

if arg[0]:match('serve%.lua$') then
   main(arg[1], tonumber(arg[2]), tonumber(arg[3]))
end

return {known = known, main = main}  -- for a worker that answers more

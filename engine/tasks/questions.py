"""Everyday questions and requests, templates times topics: over twenty thousand that a small model can answer."""

from __future__ import annotations

from itertools import combinations

THINGS = """
a volcano | an earthquake | a rainbow | a hurricane | a glacier | a desert | a coral reef | a waterfall | a tide |
a comet | a star | a black hole | the moon | the sun | a planet | a galaxy | an eclipse | gravity | friction |
electricity | a magnet | a battery | a light bulb | a lever | a pulley | a microscope | a telescope | a compass |
a thermometer | a clock | a calendar | a map | a bridge | a tunnel | a lighthouse | a windmill | a dam | a canal |
a castle | a pyramid | a cathedral | a skyscraper | a museum | a library | a theatre | an orchestra | a piano |
a guitar | a violin | a drum | a flute | a poem | a novel | a fable | a myth | a metaphor | a rhyme | a noun |
a verb | an adjective | a comma | an alphabet | a dictionary | an encyclopedia | a newspaper | a photograph |
a film | a cartoon | a sculpture | a mosaic | origami | a puzzle | a riddle | chess | football | tennis |
a marathon | the Olympic Games | a budget | a loan | a bank | inflation | a tax | insurance | a contract |
a receipt | a coupon | a market | a factory | a robot | a computer | a keyboard | a printer | a smartphone |
a camera | the internet | a website | an email | a password | a computer virus | a search engine | an algorithm |
a database | a spreadsheet | artificial intelligence | a satellite | a rocket | an airplane | a helicopter |
a bicycle | a train | a sailing boat | a submarine | an electric car | a traffic light | a seat belt | an umbrella |
a mirror | a candle | a pencil | paper | glass | steel | plastic | rubber | concrete | cotton | wool | silk |
leather | soap | a vaccine | an antibiotic | a vitamin | a calorie | protein | the heart | the brain | the liver |
a lung | a muscle | a bone | blood | skin | a cell | DNA | an atom | a molecule | an acid | a fossil | a mineral |
a crystal | a seed | a root | a leaf | a flower | a forest | photosynthesis | evaporation | a cloud | lightning |
thunder | snow | fog | frost | the wind | the ozone layer | recycling | compost | solar power | a democracy |
a constitution | an election | a law | a jury | a treaty | a fraction | a percentage | a triangle | a circle |
a prime number | an average | a graph | a habit | a dream | a memory
"""
ASK_THINGS = """
What is {}? | Can you explain {} to a child? | What would people use {} for? | Why is {} important? |
How would you describe {}? | Tell me something interesting about {}. |
What is a common mistake people make about {}? | What should I know about {}? | Give me a simple definition of {}. |
Who might need to know about {}? | Can you compare {} to something from daily life? | What is the history of {}? |
Where would I learn more about {}? | Tell me a surprising fact about {}. |
What would the world be like without {}? | What is the main idea behind {}? |
What question do children ask about {}? | How did people first learn about {}? |
What comes to mind when you think of {}? | How does {} affect our lives? | Write a short sentence about {}. |
Write a headline about {}. | What is a good title for a book about {}? | Is {} still important today? |
How would a teacher introduce {}? | Help me understand {}. | I have to talk about {} at school. Where do I start? |
What is one benefit of {}? | What is one problem with {}? | How would you explain {} over the phone? |
What is the simplest example of {}? | What is special about {}?
"""

ANIMALS = """
bees | ants | butterflies | spiders | cats | dogs | horses | cows | sheep | goats | pigs | chickens | ducks |
geese | owls | eagles | penguins | parrots | crows | pigeons | hummingbirds | swans | foxes | wolves | bears |
polar bears | pandas | lions | tigers | leopards | cheetahs | elephants | giraffes | zebras | rhinos | hippos |
monkeys | gorillas | chimpanzees | kangaroos | koalas | squirrels | rabbits | hedgehogs | beavers | otters | bats |
mice | dolphins | whales | sharks | seals | octopuses | jellyfish | crabs | salmon | goldfish | seahorses |
turtles | tortoises | snakes | lizards | crocodiles | frogs | snails | earthworms | camels | llamas | deer | moose |
reindeer | donkeys
"""
ASK_ANIMALS = """
How do {} find food? | What do {} eat? | Where do {} live? | How long do {} live? | How do {} sleep? |
How do {} communicate? | How do {} protect themselves? | How do {} raise their young? |
Why are {} important for nature? | Are {} intelligent? | How do {} survive the winter? | What is special about {}? |
Tell me a fun fact about {}. | Do {} live in groups? | What are the enemies of {}? | How fast are {}? |
How do {} see the world? | Are {} dangerous to people? | How can we protect {}? | Why do people like {}? |
What sound do {} make? | How do {} move? | How big are {}? | What should a child know about {}? |
Write a short sentence about {}. | Make up a name for a story about {}. | Can {} swim? | How do {} keep clean? |
What do baby {} look like? | How have {} changed over time? | What can we learn from {}? | Are {} active at night? |
How do {} use their senses? | Do {} make good pets?
"""

GOALS = """
sleep better | wake up earlier | eat healthier | drink more water | lose weight | get stronger | run faster |
start jogging | learn yoga | stretch my back | sit up straight | reduce stress | stay calm | feel happier |
be more patient | be more confident | make new friends | be a good listener | speak in public |
tell better stories | write a letter | write a diary | write clearly | read more books | read faster |
remember names | improve my memory | focus at work | stop procrastinating | plan my week | manage my time |
set goals | keep a promise to myself | prepare for an exam | prepare for an interview | ask for a raise |
write a resume | find a job | work from home | run a meeting | lead a team | save money | spend less |
plan a budget | pay off debt | learn a language | learn the guitar | learn to draw | learn to cook | learn to swim |
learn chess | learn programming | learn to dance | take better photos | paint a wall | fix a leaking tap |
hang a picture | clean the kitchen | clean windows | remove a stain | do the laundry | fold clothes | iron a shirt |
pack a suitcase | plan a trip | travel cheaply | pack for a hike | set up a tent | light a campfire | read a map |
ride a bicycle | fix a flat tire | drive safely | park a car | grow tomatoes | water plants | start a garden |
keep roses healthy | make compost | attract birds | train a dog | care for a cat | clean a fish tank | bake bread |
cook rice | boil an egg | make soup | make a salad | brew coffee | make tea | sharpen a knife | store vegetables |
host a dinner | plan a birthday party | choose a gift | wrap a present | say thank you | apologize |
say no politely | give feedback | settle an argument | comfort a friend | help a neighbor | welcome a guest |
teach a child to read | calm a crying baby | limit screen time | choose a phone | back up my files |
make a strong password | avoid spam | type faster | save electricity | save water | recycle more | reduce waste |
stay warm in winter | stay cool in summer | avoid a cold | treat a small cut | protect my eyes |
take care of my teeth | care for dry skin | stop a headache
"""
ASK_GOALS = """
How do I {}? | What is the best way to {}? | Give me a tip to {}. | I want to {}. Any advice? | Why should I {}? |
How long does it take to {}? | What do I need to {}? | What should I avoid when I try to {}? | Is it hard to {}? |
How can a beginner {}? | Remind me how to {}. | What is the first step to {}? | Help me {}. |
My friend wants to {}. What should I say? | Can I {} in a week? | How can I {} without spending money? |
What is a common mistake when people try to {}? | How can I {} every day? | What helps people {}? |
I always fail to {}. What can I change? | Can you motivate me to {}? | What is a quick way to {}? |
Tell me how to {}. | Give me a plan to {}. | How would an expert {}? | How can I {} with little time? |
When is the best time to {}? | What would you tell someone who wants to {}? | How can a busy parent {}? |
Is it worth it to {}?
"""

FOODS = """
pizza | pasta | lasagna | risotto | sushi | ramen | curry | tacos | burritos | pancakes | waffles | omelettes |
porridge | granola | sandwiches | burgers | French fries | mashed potatoes | fried rice | noodle soup |
tomato soup | onion soup | chili | meatballs | roast chicken | grilled fish | scrambled eggs | vegetable stew |
lentils | hummus | falafel | guacamole | salsa | pesto | cheese | yogurt | butter | bread | bagels | croissants |
cookies | brownies | apple pie | cheesecake | chocolate cake | ice cream | pudding | honey | jam | peanut butter |
chocolate | apples | bananas | oranges | grapes | strawberries | blueberries | mangoes | avocados | carrots |
spinach | broccoli | garlic | mushrooms | pumpkins | coffee | green tea | lemonade | hot chocolate | smoothies |
salad dressing | popcorn
"""
ASK_FOODS = """
How do I make {}? | What goes well with {}? | Should I have {} every day? | What can I add to {}? |
What is the origin of {}? | How should I store {}? | What is the secret of good {}? | Why do people love {}? |
How do I serve {}? | What can I use instead of {}? | How do I notice that {} went bad? |
Tell me a fun fact about {}. | Describe the taste of {}. | What is the history of {}? |
Suggest a drink to go with {}. | May children have {}? | How can I make {} cheaper? | Write a short ad for {}. |
When do people eat or drink {}? | What should a beginner know about {}? | Can I freeze {}? |
Which country is famous for {}? | How can I make {} healthier? | What is a common mistake with {}? |
Invent a funny name for a shop that sells {}.
"""

PLACES = """
Paris | London | Rome | Berlin | Madrid | Vienna | Athens | Lisbon | Amsterdam | Prague | Stockholm | Oslo |
Dublin | Moscow | Istanbul | Cairo | Nairobi | Cape Town | Lagos | Dubai | Mumbai | Delhi | Bangkok | Singapore |
Hong Kong | Beijing | Shanghai | Tokyo | Kyoto | Seoul | Sydney | Melbourne | New York | Chicago | Boston |
San Francisco | Los Angeles | Toronto | Vancouver | Mexico City | Havana | Lima | Rio de Janeiro | Buenos Aires |
Iceland | Norway | Switzerland | Italy | Spain | Greece | Egypt | Kenya | Morocco | India | Nepal | China | Japan |
Thailand | Vietnam | Australia | New Zealand | Canada | Mexico | Brazil | Peru | Argentina | Chile | Hawaii |
Alaska | the Alps | the Sahara | the Amazon rainforest | the Grand Canyon | Antarctica
"""
ASK_PLACES = """
What is {} known for? | Where is {}? | What should I see in {}? | What is the weather like in {}? |
What food should I try in {}? | When is the best time to visit {}? | Is {} expensive to visit? |
How do people get around in {}? | Tell me a fun fact about {}. | What language would I hear in {}? |
What should I pack for {}? | Why do tourists go to {}? | Is {} good for families? | What is the history of {}? |
Write a postcard from {}. | What can I do for free in {}? | How many days do I need in {}? |
What surprises people about {}? | Describe {} to someone who has never been there. | What is nature like in {}? |
What souvenir can I bring from {}? | Suggest a slogan for {}. | What should children know about {}? |
How is life in {}? | What is a good day in {} like?
"""

PEOPLE = """
a teacher | a nurse | a doctor | a dentist | a surgeon | a pharmacist | a vet | a scientist | a chemist |
an astronomer | an engineer | an architect | a carpenter | an electrician | a plumber | a mechanic | a pilot |
a sailor | a bus driver | a train driver | an astronaut | a firefighter | a police officer | a soldier | a judge |
a lawyer | a politician | a mayor | a journalist | an editor | a writer | a poet | a translator | a librarian |
an actor | a dancer | a singer | a musician | a conductor | a painter | a photographer | a designer | a tailor |
a hairdresser | a chef | a baker | a waiter | a butcher | a farmer | a gardener | a fisher | a beekeeper | a miner |
a builder | a cleaner | a shopkeeper | a cashier | a banker | an accountant | an economist | a programmer |
a data analyst | a manager | a secretary | a salesperson | a tour guide | a coach | a referee | a psychologist |
a social worker | a historian | a detective
"""
ASK_PEOPLE = """
What does {} do? | How do I become {}? | What skills does {} need? | Why do we need {}? | What tools does {} use? |
Where does {} work? | What is hard about being {}? | What is fun about being {}? |
What does the day of {} look like? | How much does {} have to study? | What would you ask {}? |
What makes {} good at the job? | Is it hard to be {}? | Write a short thank-you note to {}. |
Tell me a joke about {}. | What should {} never do? | How has the work of {} changed? | What gift would {} like? |
Does {} work at night? | Who does {} work with? | What would happen without {}? | How does {} start the morning? |
Describe {} in a few words. | What does {} worry about? | How can a child learn what {} does? |
What is a good name for {} in a story?
"""

PAIRS = (
    (THINGS, ASK_THINGS),
    (ANIMALS, ASK_ANIMALS),
    (GOALS, ASK_GOALS),
    (FOODS, ASK_FOODS),
    (PLACES, ASK_PLACES),
    (PEOPLE, ASK_PEOPLE),
)


def _items(text: str) -> list[str]:
    return [item for part in text.split("|") if (item := " ".join(part.split()))]


def questions() -> list[str]:
    """All of them, each once, in a fixed order."""
    single = [ask.format(topic) for topics, asks in PAIRS for topic in _items(topics) for ask in _items(asks)]
    compared = [f"Can you compare {a} and {b}?" for a, b in combinations(_items(ANIMALS), 2)]
    chosen = [f"Should I visit {a} or {b}?" for a, b in combinations(_items(PLACES), 2)]
    return single + compared + chosen
